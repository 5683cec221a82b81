"""Changes of the length of a run."""

from typing import Any

from service.advice.facts import Facts, get_field

PATIENCE = 3
"""Evaluations without a better model after which a longer run ends; 5 of them are the automatic choice."""
MORE_PASSES = "More passes over the same rows may make the model worse: run.patience ends the run then."
_BY_EPOCHS = ("run.validation_fraction", "run.patience", "run.blend")
"""Fields whose automatic values depend on whether the epochs are automatic too."""
_OFF = (None, 0.0, "none")
"""Values that these fields get anyway once the epochs are set."""


def change_epochs(facts: Facts, epochs: float) -> dict[str, Any]:
    """Return the changes that give a run so many epochs, and leave its batch and how its model is chosen as they were.

    Other fields that say auto follow the epochs: they are decided otherwise once these are set.
    """
    kept = _BY_EPOCHS if get_field(facts.spec, "run.epochs") == "auto" else ()
    if facts.spec["preset"] is not None:
        # It chooses the batch by the rows of all epochs.
        kept += ("batch.global_size",)
    values = {field: facts.get(field) for field in kept if get_field(facts.spec, field) == "auto"}
    return {"run.epochs": epochs} | {field: value for field, value in values.items() if value not in _OFF}


def lengthen(facts: Facts, epochs: float) -> dict[str, Any]:
    """Return the changes that give a run so many epochs, and end it if more passes over its rows make it worse."""
    changes = change_epochs(facts, epochs)
    if epochs > 1 and facts.get("run.patience") is None:
        changes["run.patience"] = PATIENCE
    return changes
