"""Presets: named sets of values for the fields that a job document leaves out, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

PresetName = Literal["large_batch"]

MAX_LARGE_BATCH = 524_288
"""Largest batch that the preset large_batch chooses, in samples."""
MIN_LARGE_BATCH_STEPS = 800
"""Least number of steps of an epoch for which the preset large_batch chooses a batch: with 880 to 1,000 the AUC was
0.0005 to 0.001 below that of small batches, with 220 to 250 it was 0.003 to 0.004 below (docs/experiments.md)."""


@dataclass(frozen=True)
class PresetValue:
    """Value of one field in a preset."""

    value: int | float | str
    reason: str
    """Reason for the value, as it is printed."""


PRESETS: dict[PresetName, dict[str, PresetValue]] = {
    "large_batch": {
        "dense_optimizer.name": PresetValue("adam", "none of eight optimizers was better on real rows"),
        "dense_optimizer.learning_rate": PresetValue(
            0.016, "among the best in 220 steps; the only one tried at 524,288"
        ),
        "dense_optimizer.schedule.base_batch": PresetValue(MAX_LARGE_BATCH, "the batch of learning_rate"),
        "dense_optimizer.schedule.scaling": PresetValue("sqrt", "for other batches than schedule.base_batch"),
        "dense_optimizer.schedule.decay": PresetValue("wsd", "as good as cosine, and high for long"),
        "table_optimizer.name": PresetValue("rowwise_adagrad", "one number of state for each row"),
        "table_optimizer.learning_rate": PresetValue(0.06, "the best of those tried at 2,048, 16,384 and 65,536"),
    },
}
"""Values of each preset by dotted field. Chosen by experiments (docs/experiments.md)."""

_OF_RATE = ("learning_rate", "schedule.base_batch", "schedule.scaling")
"""Fields of an optimizer that mean something only together: a preset fills all of them, or none."""


def fill_preset(document: Any) -> Any:
    """Return a job document with the values of its preset in the fields that it leaves out.

    A section whose `name` is another one than the preset's, such as another optimizer, gets nothing; one that states
    its learning rate, or how that scales, keeps both. A document without a preset, with one that there is not, or that
    is no object, is returned unchanged.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    preset = fields.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return fields
    values = PRESETS[preset]
    filled = fields
    for field, entry in values.items():
        if not _is_of_other_name(fields, field, values) and not _has_own_rate(fields, field):
            filled = _fill(filled, field.split("."), entry.value)
    return filled


def list_preset_values(name: PresetName | None, document: Mapping[str, Any]) -> dict[str, PresetValue]:
    """List the fields of a whole document that have the values of the preset; none without a preset."""
    values = PRESETS[name] if name is not None else {}
    return {field: entry for field, entry in values.items() if _get(document, field.split(".")) == entry.value}


def _is_of_other_name(document: Mapping[str, Any], field: str, values: Mapping[str, PresetValue]) -> bool:
    """Whether the section of `field` states another name than the preset has for it."""
    name = f"{field.partition('.')[0]}.name"
    stated = _get(document, name.split("."))
    return stated is not None and name in values and stated != values[name].value


def _has_own_rate(document: Mapping[str, Any], field: str) -> bool:
    """Whether `field` belongs to the learning rate of a section that states something of it."""
    section, _, name = field.partition(".")
    return name in _OF_RATE and any(_get(document, [section, *other.split(".")]) is not None for other in _OF_RATE)


def _fill(node: Any, path: list[str], value: Any) -> Any:
    """Return a copy of `node` with `value` at the end of `path`, where nothing is stated there or on the way."""
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    name, *rest = path
    if not rest:
        return fields if name in fields else {**fields, name: value}
    return {**fields, name: _fill(fields.get(name, {}), rest, value)}


def _get(node: Any, path: list[str]) -> Any:
    """Return what is at the end of `path`; None where there is nothing."""
    for name in path:
        if not isinstance(node, Mapping):
            return None
        node = cast("Mapping[str, Any]", node).get(name)
    return node
