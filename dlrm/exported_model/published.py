"""Public settings and card of a model: without paths, labels, trackers and places to run.

Names of columns, and values in the encoders, stay: nobody can score rows without them. The card is rendered from the
public settings alone, so that nothing of the private card can be in it.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from dlrm.data.encode.encoders import Encoders
from dlrm.exported_model.card import render_card, render_document
from dlrm.exported_model.layout import SavedConfig

_OTHER_MODEL = "another-model"
"""Name in place of the model that a run has started from."""
_ROWS = "rows"
"""Name in place of a directory, and of a file without an ending, whose name might be a directory's."""
_ENDS_OF_FILES = (
    *(".arrow", ".csv", ".feather", ".gz", ".ipc", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".tsv", ".txt"),
    *(".zst", ".zstd"),
)


def make_public_config(config: SavedConfig) -> SavedConfig:
    """Return the settings without what is private; of the rows, names of files are left."""
    training = copy.deepcopy(config.training)
    if training["run"].get("warm_start") is not None:
        training["run"]["warm_start"]["from"] = _OTHER_MODEL
    for section, names in (("run", ("trackers",)), ("resources", ("launcher", "kubernetes"))):
        for name in names:
            training[section].pop(name, None)
    training.pop("labels", None)
    data = config.data
    named = {"train": _name_files(data.train), "eval": None if data.eval is None else _name_files(data.eval)}
    return config.model_copy(update={"training": training, "data": data.model_copy(update=named), "packed": None})


def render_public_card(public: SavedConfig, encoders: Encoders | None, metrics: Mapping[str, float | None]) -> str:
    """Render the card of a published model. public: settings that `make_public_config` made."""
    text = "Without its paths, labels, trackers and launcher; other defaults are filled in:"
    return render_card(public, encoders, metrics, {"Its job": f"{text}\n\n{render_document(public)}"})


def _name_files(names: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(map(_name_file, names))]


def _name_file(name: str) -> str:
    """Return the name of a file, or of a pattern of files, without its directories; `rows` for a directory."""
    key = name.partition("://")[2].partition("/")[2] if "://" in name else name
    return PurePosixPath(key).name if key.lower().endswith(_ENDS_OF_FILES) else _ROWS
