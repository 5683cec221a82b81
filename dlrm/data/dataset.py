"""The data of one job, opened."""

from dataclasses import dataclass
from pathlib import Path

from dlrm.data.encode.encoders import Encoders
from dlrm.data.rows import DataSchema, RowSource


@dataclass(frozen=True)
class Dataset:
    """Training and evaluation rows of one schema."""

    schema: DataSchema
    train: RowSource
    evaluation: RowSource
    train_label_rate: float
    """Share of positives among the training rows."""
    encoders: Encoders | None
    """How raw values became these rows; None where the source makes table rows itself."""
    has_weights: bool = False
    """Whether rows have weights."""
    mean_train_weight: float = 1.0
    """Of the training rows; 1 where rows have no weight."""
    directory: Path | None = None
    """Where the packed rows lie, as an absolute path; None where the source makes them."""
