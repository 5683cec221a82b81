"""Rows that are looked at, column by column."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.random import random_units, stream_key
from dlrm.data.raw.table import CategoricalValues, RawTable

_FITTED_ON = stream_key(0x1EAC)
"""The stream that halves the rows; fixed, so that the same data always says the same."""


@dataclass(frozen=True)
class CategoricalColumn:
    """The values of one categorical column in the n rows that are looked at."""

    name: str
    codes: NDArray[np.int64]
    """[n], or [sum of lengths] of a multi-hot column: places in `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """Ascending."""
    lengths: NDArray[np.int32] | None = None
    """[n], of a multi-hot column."""
    table_rows: int | None = None
    """Of its table, where the values are rows of one already."""


@dataclass(frozen=True)
class DenseColumn:
    name: str
    values: NDArray[np.float64]
    """[n], finite or NaN = missing."""


@dataclass(frozen=True)
class Names:
    """Of the columns that are looked at."""

    dense: Sequence[str]
    categorical: Sequence[str]
    table_rows: Sequence[int] | None = None
    """Of the tables of the categorical columns, where their values are rows of tables already."""


@dataclass(frozen=True)
class LookedAt:
    """The n rows that are looked at."""

    tables: Sequence[RawTable]
    """All with the same columns; n rows together."""
    row_numbers: NDArray[np.int64]
    """[n], in all rows, ascending."""
    names: Names
    num_rows: int
    """Of all rows, bad ones included."""

    @property
    def labels(self) -> NDArray[np.float32]:
        return np.concatenate([table.labels for table in self.tables])

    @property
    def is_fitted_on(self) -> NDArray[np.bool_]:
        """[n], the half of the rows that rates are fitted on; the other half measures them."""
        return random_units(_FITTED_ON, self.row_numbers) < 0.5

    def dense(self, place: int) -> DenseColumn:
        return DenseColumn(self.names.dense[place], np.concatenate([table.dense[place] for table in self.tables]))

    def categorical(self, place: int) -> CategoricalColumn:
        parts = [table.categorical[place] for table in self.tables]
        every = pl.concat([part.distinct for part in parts])
        distinct = every.unique().sort()
        # The place of a value among all distinct ones.
        places = (every.rank("dense").cast(pl.Int64) - 1).to_numpy()
        ends = np.cumsum([len(part.distinct) for part in parts])
        codes = [
            np.append(places[end - len(part.distinct) : end], -1)[part.codes]
            for part, end in zip(parts, ends, strict=True)
        ]
        lengths = [part.lengths for part in parts if part.lengths is not None]
        return CategoricalColumn(
            self.names.categorical[place],
            np.concatenate(codes),
            distinct,
            np.concatenate(lengths) if lengths else None,
            self.names.table_rows[place] if self.names.table_rows else None,
        )


def taken(table: RawTable, rows: NDArray[np.int64]) -> RawTable:
    """The rows of these numbers, ascending."""
    if len(rows) == table.num_rows:
        return table
    return RawTable(
        labels=table.labels[rows],
        weights=None if table.weights is None else table.weights[rows],
        dense=[column[rows] for column in table.dense],
        categorical=[_taken(column, rows) for column in table.categorical],
    )


def _taken(column: CategoricalValues, rows: NDArray[np.int64]) -> CategoricalValues:
    if column.lengths is None:
        return _reduced(column.codes[rows], column.distinct)
    is_taken = np.zeros(len(column.lengths), dtype=np.bool_)
    is_taken[rows] = True
    return _reduced(column.codes[np.repeat(is_taken, column.lengths)], column.distinct, column.lengths[rows])


def _reduced(
    codes: NDArray[np.int32], distinct: pl.Series, lengths: NDArray[np.int32] | None = None
) -> CategoricalValues:
    """The column without the distinct values that no code names."""
    is_used = np.zeros(len(distinct) + 1, dtype=np.bool_)
    is_used[codes] = True
    # -1 is the last place, and stays -1.
    is_used = is_used[:-1]
    new_codes = np.append(np.cumsum(is_used, dtype=np.int32) - 1, np.int32(-1)).astype(np.int32)
    return CategoricalValues(new_codes[codes], distinct.filter(pl.Series(is_used)), lengths)
