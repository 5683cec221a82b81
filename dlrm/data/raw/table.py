"""Raw rows: parsed and checked, but not yet encoded for a model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


def make_unknown_labels(num_rows: int) -> NDArray[np.float32]:
    """Return NaN labels [num_rows] for rows that are read without labels, only to be scored."""
    return np.full(num_rows, np.nan, dtype=np.float32)


@dataclass(frozen=True)
class CategoricalValues:
    """One categorical column of n rows, encoded as codes into its distinct values."""

    codes: NDArray[np.int32]
    """[n], or [sum of lengths] of a multi-hot column, row by row: indices into `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """Present values without duplicates, ascending: Int64 or String, or Float64 where `bucketize` is set."""
    lengths: NDArray[np.int32] | None = None
    """[n], number of values of each row of a multi-hot column; None if every row has one."""


@dataclass(frozen=True)
class RawTable:
    """Columns of n rows, in the order of their `SchemaConfig`."""

    labels: NDArray[np.float32]
    """[n], labels 0 or 1; all NaN where rows are read without labels."""
    weights: NDArray[np.float32] | None
    """[n], finite weights of at least 0; None if the schema has no weight, or rows are read without labels."""
    dense: list[NDArray[np.float64]]
    """N columns of shape [n]; values are finite, or NaN = missing."""
    categorical: list[CategoricalValues]
    """F columns of n rows each."""
    label_values: Sequence[str] = ()
    """Some of the values of the label column, where the schema has a positive one."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)
