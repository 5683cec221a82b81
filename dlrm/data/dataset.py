"""The opened data of one job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.data.encode.encoders import Encoders
from dlrm.data.rows import DataSchema, RowSource


@dataclass(frozen=True)
class GrowingLog:
    """State of a growing set of files, as far as it was prepared."""

    num_rows: int
    """Number of rows so far, in whole windows."""
    num_first_rows: int
    """Number of rows of the first files, however many others there are."""
    first_directory: Path
    """Packed directory of the first files; it may be gone once the run has a checkpoint."""
    evaluated: Sequence[tuple[int, int]]
    """First row of further files, and row behind their last one: these rows are evaluated before they are trained
    on."""
    files: Sequence[str]
    """Names of the files, in the order in which they were read."""
    is_complete: bool
    """Whether no file is to follow."""

    def count_trainable(self, batch_rows: int) -> int:
        """Count the rows that can be trained on: all in whole batches, and a short one at the end of the log."""
        return self.num_rows if self.is_complete else self.num_rows // batch_rows * batch_rows


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
    growing: GrowingLog | None = None
    """State of the files if further ones may follow; None if these are all rows."""
    directory: Path | None = None
    """Absolute path of the packed directory; None if the source generates the rows."""
