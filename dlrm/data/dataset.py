"""The opened data of one job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    """Encoders that turned raw values into these rows; None if the source generates table rows itself."""
    has_weights: bool = False
    """Whether rows have weights."""
    mean_train_weight: float = 1.0
    """Mean weight of the training rows, those held out of them not counted; 1 where rows have no weights."""
    validation: RowSource | None = None
    """Rows held out of the training rows to choose the best model; None if the evaluation rows choose it."""
    eval_label_rate: float | None = None
    """Share of positives among the evaluation rows; None if it has not been counted."""
    window_rows: int | None = None
    """Number of training rows of a window, if ids come and go; None if they keep their rows."""
    reused: Mapping[int, NDArray[np.int64]] = field(default_factory=dict[int, NDArray[np.int64]])
    """[k, 2] window, and table row that another id has from this window on, by the feature's number."""
    directory: Path | None = None
    """Absolute path of the packed directory; None if the source generates the rows."""
