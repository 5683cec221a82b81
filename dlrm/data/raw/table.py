"""Rows as their files hold them: parsed and checked, but not yet what a model takes."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


def unknown_labels(num_rows: int) -> NDArray[np.float32]:
    """The labels [num_rows] of rows that are read without: to be scored, not to be trained or measured on."""
    return np.full(num_rows, np.nan, dtype=np.float32)


@dataclass(frozen=True)
class CategoricalValues:
    """One categorical column of n rows, every distinct value written once."""

    codes: NDArray[np.int32]
    """[n], or [sum of lengths] of a multi-hot column, row by row: places in `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """The present values, ascending, none twice: Int64 or String."""
    lengths: NDArray[np.int32] | None = None
    """[n], values of each row of a multi-hot column; None: one each."""


@dataclass(frozen=True)
class RawTable:
    """n rows, column by column, in the order of their `SchemaConfig`."""

    labels: NDArray[np.float32]
    """[n], 0 or 1; all NaN where rows are read without them."""
    weights: NDArray[np.float32] | None
    """[n], finite and at least 0; None where the schema has no weight, or rows are read without labels."""
    dense: list[NDArray[np.float64]]
    """N columns of [n], finite or NaN = missing."""
    categorical: list[CategoricalValues]
    """F columns."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)
