"""The inspected rows, column by column."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.random import random_units, stream_key
from dlrm.data.raw.table import CategoricalValues, RawTable

_FITTED_ON_KEY = stream_key(0x1EAC)
"""Random stream that splits the rows into halves; fixed, so that the same data always gives the same report."""


@dataclass(frozen=True)
class CategoricalColumn:
    """The values of one categorical column in the n inspected rows."""

    name: str
    codes: NDArray[np.int64]
    """[n], or [sum of lengths] of a multi-hot column: indices into `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """Distinct values, ascending."""
    lengths: NDArray[np.int32] | None = None
    """[n], number of values of each row of a multi-hot column; None where every row has one."""
    table_rows: int | None = None
    """Rows of the column's table, where its values are row numbers of a table already."""


@dataclass(frozen=True)
class DenseColumn:
    name: str
    values: NDArray[np.float64]
    """[n], finite values, or NaN = missing."""


@dataclass(frozen=True)
class Names:
    """Names of the inspected columns."""

    dense: Sequence[str]
    categorical: Sequence[str]
    table_rows: Sequence[int] | None = None
    """Rows of each categorical column's table, where values are row numbers of tables already."""


@dataclass(frozen=True)
class InspectedRows:
    """The n rows that are inspected, out of all rows of the data."""

    tables: Sequence[RawTable]
    """Pieces of the inspected rows, all with the same columns; n rows together."""
    row_numbers: NDArray[np.int64]
    """[n], numbers of the inspected rows among all rows, ascending."""
    names: Names
    num_rows: int
    """Number of all rows, bad ones included."""

    @property
    def labels(self) -> NDArray[np.float32]:
        return np.concatenate([table.labels for table in self.tables])

    @property
    def is_fitted_on(self) -> NDArray[np.bool_]:
        """[n], true for the half of the rows that rates are fitted on; the other half measures them."""
        return random_units(_FITTED_ON_KEY, self.row_numbers) < 0.5

    def dense(self, index: int) -> DenseColumn:
        return DenseColumn(self.names.dense[index], np.concatenate([table.dense[index] for table in self.tables]))

    def categorical(self, index: int) -> CategoricalColumn:
        parts = [table.categorical[index] for table in self.tables]
        all_distinct = pl.concat([part.distinct for part in parts])
        distinct = all_distinct.unique().sort()
        # Index of each value among the distinct values of all pieces.
        positions = (all_distinct.rank("dense").cast(pl.Int64) - 1).to_numpy()
        ends = np.cumsum([len(part.distinct) for part in parts])
        codes = [
            np.append(positions[end - len(part.distinct) : end], -1)[part.codes]
            for part, end in zip(parts, ends, strict=True)
        ]
        lengths = [part.lengths for part in parts if part.lengths is not None]
        return CategoricalColumn(
            self.names.categorical[index],
            np.concatenate(codes),
            distinct,
            np.concatenate(lengths) if lengths else None,
            self.names.table_rows[index] if self.names.table_rows else None,
        )


def select_rows(table: RawTable, rows: NDArray[np.int64]) -> RawTable:
    """Select the rows of `table` with these row numbers, ascending."""
    if len(rows) == table.num_rows:
        return table
    return RawTable(
        labels=table.labels[rows],
        weights=None if table.weights is None else table.weights[rows],
        dense=[column[rows] for column in table.dense],
        categorical=[_select_values(column, rows) for column in table.categorical],
    )


def _select_values(column: CategoricalValues, rows: NDArray[np.int64]) -> CategoricalValues:
    if column.lengths is None:
        return _drop_unused(column.codes[rows], column.distinct)
    is_selected = np.zeros(len(column.lengths), dtype=np.bool_)
    is_selected[rows] = True
    return _drop_unused(column.codes[np.repeat(is_selected, column.lengths)], column.distinct, column.lengths[rows])


def _drop_unused(
    codes: NDArray[np.int32], distinct: pl.Series, lengths: NDArray[np.int32] | None = None
) -> CategoricalValues:
    """Remove the distinct values that no code refers to."""
    is_used = np.zeros(len(distinct) + 1, dtype=np.bool_)
    is_used[codes] = True
    # Code -1 indexes the last element, and stays -1.
    is_used = is_used[:-1]
    new_codes = np.append(np.cumsum(is_used, dtype=np.int32) - 1, np.int32(-1)).astype(np.int32)
    return CategoricalValues(new_codes[codes], distinct.filter(pl.Series(is_used)), lengths)
