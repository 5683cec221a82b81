"""Public settings and card of a model: without paths, labels, trackers and places to run.

Names of columns, and values in the encoders, stay: nobody can score rows without them.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from dlrm.exported_model.card import PROVENANCE, render_document
from dlrm.exported_model.layout import SavedConfig

_PUBLIC_JOB = "Its job"


class PrivateCardError(ValueError):
    """Card that names a private place outside of its private section; the text names the place."""


def make_public_config(config: SavedConfig) -> SavedConfig:
    """Return the settings without what is private; of files the names are left, without their directories."""
    training = copy.deepcopy(config.training)
    training["run"] |= {"warm_start": None}
    for section, names in (("run", ("trackers",)), ("resources", ("launcher", "kubernetes"))):
        for name in names:
            training[section].pop(name, None)
    training.pop("labels", None)
    data = config.data
    named = {"train": _name_files(data.train), "eval": None if data.eval is None else _name_files(data.eval)}
    return config.model_copy(update={"training": training, "data": data.model_copy(update=named), "packed": None})


def make_public_card(card: str, config: SavedConfig) -> str:
    """Return a card with the public settings of the job in the place of its private section.

    config: private settings. Raises PrivateCardError if a private place is left, as people may edit cards.
    """
    head = card
    for title in (PROVENANCE, _PUBLIC_JOB):
        head = head.partition(f"\n## {title}\n")[0].rstrip()
    if place := next((place for place in _list_places(config) if place in head), None):
        raise PrivateCardError(place)
    text = "Without its paths, labels, trackers and launcher; other defaults are filled in:"
    document = render_document(make_public_config(config))
    return f"{head}\n\n## {_PUBLIC_JOB}\n\n{text}\n\n{document}\n"


def _name_files(names: Sequence[str]) -> list[str]:
    paths = [PurePosixPath(name.partition("://")[2].partition("/")[2] if "://" in name else name) for name in names]
    return [*dict.fromkeys(path.name or "rows" for path in paths)]


def _list_places(config: SavedConfig) -> Iterator[str]:
    """List the directories and buckets of the files that settings name."""
    warm_start: dict[str, Any] = config.training["run"].get("warm_start") or {}
    named = [*config.data.train, *(config.data.eval or ()), *([warm_start["from"]] if warm_start else [])]
    if config.packed is not None:
        named += [config.packed.directory, *config.packed.tables]
    parents = (name.rpartition("/")[0] for name in named if name.startswith("/") or "://" in name)
    yield from (f"{parent}/" for parent in parents if parent)
