"""A trained model on disk.

<directory>/model.safetensors   tables.<feature>.weight [rows, D], dense.<parameter>: float32
            config.json         what the model is, and how it was trained
            encoders/           how raw values become what it takes: see dlrm.data.encode.encoders; absent where the
                                model was trained on a synthetic log
            metrics.json        what the run measured at its end
            MODEL_CARD.md       the same for people, who may edit it
            manifest.json       size and SHA-256 of every other file but the card; written last
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dlrm.config import DataConfig, ModelConfig
from dlrm.data.packed.layout import ENCODERS, FileMeta
from dlrm.record import PreparedData

WEIGHTS, CONFIG, METRICS, CARD, MANIFEST = (
    "model.safetensors",
    "config.json",
    "metrics.json",
    "MODEL_CARD.md",
    "manifest.json",
)
FORMAT = 1

__all__ = ["CARD", "CONFIG", "ENCODERS", "FORMAT", "MANIFEST", "METRICS", "WEIGHTS", "Manifest", "SavedConfig"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class SavedConfig(_Record):
    """What `config.json` holds."""

    model: ModelConfig
    num_dense: int
    """N, dense features as the model takes them, indicators of missing values among them."""
    table_rows: dict[str, int]
    """Rows of each feature's table, in the order of the features."""
    data: DataConfig
    """As in the job, with every path absolute."""
    training: dict[str, Any]
    """The rest of the job's document: with `model` and `data` it trains the model again."""
    packed: PreparedData | None
    """The packed rows that it was trained on; None for a synthetic log."""
    train_label_rate: float
    """What a constant predictor says."""
    exported_at: float
    """Seconds since 1970."""
    versions: dict[str, str]
    """Of the program and the libraries that trained it."""


class Manifest(_Record):
    """What `manifest.json` holds."""

    format: Literal[1] = FORMAT
    files: dict[str, FileMeta]
    """By path relative to the directory."""
