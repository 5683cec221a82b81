"""Files of a trained model on disk.

<directory>/model.safetensors   tables.<feature>.weight [rows, D], dense.<parameter>: float32; of a blended model also
                                first_order.bias [1], first_order.dense [N],
                                first_order.tables.<feature>.weight [rows, 1]; of a compressed model see
                                dlrm.model.quantized
            config.json         settings of the model, its data and its training
            encoders/           encoders of raw values, see dlrm.data.encode.encoders; absent where the model was
                                trained on a synthetic log
            metrics.json        final metrics of the run
            MODEL_CARD.md       description of the model for users, who may edit it
            README.md           the same with metadata, in a directory for the Hugging Face Hub
            manifest.json       size and SHA-256 of every other file but the cards; written last
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from dlrm.config import DataConfig, ModelConfig
from dlrm.data.packed.layout import ENCODERS
from dlrm.record import FileRecord, PreparedData, Record
from sharding.jagged import SequenceShape

WEIGHTS, CONFIG, METRICS, CARD, HUB_CARD, MANIFEST = (
    "model.safetensors",
    "config.json",
    "metrics.json",
    "MODEL_CARD.md",
    "README.md",
    "manifest.json",
)
FORMAT = 1

__all__ = [
    "CARD",
    "CONFIG",
    "ENCODERS",
    "FORMAT",
    "HUB_CARD",
    "MANIFEST",
    "METRICS",
    "WEIGHTS",
    "Compression",
    "Manifest",
    "Position",
    "Recalibration",
    "RowFacts",
    "SavedConfig",
]


class Compression(Record):
    """Formats of a compressed model's weights."""

    tables: Literal["fp32", "int8", "int4"]
    """Format of the embedding tables, quantized row by row."""
    dense: Literal["fp32", "int8"]
    """Format of the matrices of the dense part, quantized output by output; biases stay in fp32."""
    prune: float = Field(ge=0, lt=1)
    """Share of the elements of these matrices that were set to zero, smallest magnitudes first."""
    is_retrained: bool = False
    """Whether the model was trained on after that, with these elements at zero."""
    is_measured_on_data: bool = False
    """Whether its metrics are of files given to the compression; otherwise of the rows that its run held out."""


class Recalibration(Record):
    """Map of logits z that was fitted on the validation rows."""

    kind: Literal["isotonic", "platt"]
    slope: float = 1.0
    """Slope of platt's slope z + offset; 1 for isotonic."""
    offset: float = 0.0
    before: list[float] = Field(default=[])
    """Logits at the ends of the blocks of isotonic, ascending; empty for platt."""
    after: list[float] = Field(default=[])
    """Logits that these become. Between them the map is linear; outside of them the nearest one counts."""


class RowFacts(Record):
    """Facts of the rows that a model was trained on."""

    num_train_rows: int
    num_held_out_rows: int | None
    """Number of rows held out of the training; null if the job followed files."""
    label_rate: float
    """Share of positives among the training rows, weighted; without a correction for `data.negative_sampling`."""
    mean_weight: float | None
    """Mean weight of the training rows; null if rows have no weights."""
    num_bad_rows: int | None
    """Number of bad rows that were left out; null for a synthetic log."""


class Position(Record):
    """State of a model that takes deltas."""

    base: str
    """SHA-256 of the weights of the model that the deltas begin with."""
    order: int = Field(ge=0)
    """Number of deltas that it has taken."""
    checksum: str
    """Checksum of the last one; `base` before the first."""


class SavedConfig(Record):
    """Content of `config.json`."""

    model_config = ConfigDict(serialize_by_alias=True)

    model: ModelConfig
    num_dense: int
    """N, number of dense inputs of the model, indicators of missing values included."""
    table_rows: dict[str, int]
    """Rows of each feature's table, in the order of the features."""
    sequences: dict[str, SequenceShape] = Field(default={})
    """Shape of each sequence by its feature, in the order of the features, after all others; empty if there are none,
    and in models of earlier versions."""
    first_order_share: float | None = None
    """Share of the first-order part in the logit of a blended model, from 0 to 1; null if there is none, and in
    models of earlier versions."""
    recalibration: Recalibration | None = None
    """Map of its logits, after these were corrected for `data.negative_sampling`; null if there is none, and in models
    of earlier versions."""
    data: DataConfig
    """Data settings of the job, with every path absolute."""
    training: dict[str, Any]
    """Rest of the job document; together with `model` and `data` it can train the model again."""
    packed: PreparedData | None
    """Packed rows that the model was trained on; None for a synthetic log."""
    raw_format: str | None = None
    """Format of the files that these rows were prepared from; None for a synthetic log, and where an earlier version
    prepared them."""
    rows: RowFacts | None = None
    """Facts of these rows; null in models of earlier versions."""
    step: int | None = None
    """Step of the checkpoint that the model was exported from; null in models of earlier versions, and in one exported
    from a checkpoint that has no number."""
    position: Position | None = None
    """Deltas that it has taken; null if it was written whole, and in models of earlier versions."""
    compression: Compression | None = None
    """Formats of its weights if it was compressed after its training; null if it was not."""
    train_label_rate: float
    """Label rate of the training rows, corrected for `data.negative_sampling`: the constant predictor's probability."""
    exported_at: float
    """Time of the export, in seconds since 1970."""
    versions: dict[str, str]
    """Versions of the program and of the libraries that trained the model, by name."""

    @property
    def is_measured_on_given_files(self) -> bool:
        """Whether its metrics are of files given to its compression; otherwise of the rows that its run held out."""
        return self.compression is not None and self.compression.is_measured_on_data


class Manifest(Record):
    """Content of `manifest.json`."""

    format: Literal[1] = FORMAT
    files: dict[str, FileRecord]
    """Size and SHA-256 of each file but the cards, by path relative to the directory."""
