"""The inspected rows, column by column."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import SchemaConfig
from dlrm.data.encode.vocabulary import RangeVocabulary
from dlrm.data.errors import DataError
from dlrm.data.random import random_units, stream_key
from dlrm.data.raw.block import CategoricalValues, RawTable

_FITTED_ON_KEY = stream_key(0x1EAC)
"""Random stream that splits the rows into halves; fixed, so that the same data always gives the same report."""


@dataclass(frozen=True)
class CategoricalColumn:
    """The values of one categorical column in the n inspected rows."""

    name: str
    codes: NDArray[np.int64]
    """[n], or [sum of lengths] of a multi-hot column: indices into `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """Distinct values, ascending; or the names of ranges, each with some value in it."""
    lengths: NDArray[np.int32] | None = None
    """[n], number of values of each row of a multi-hot column; None if every row has one."""
    table_rows: int | None = None
    """Rows of the column's table, where its values are row numbers of a table already."""
    fixed_rows: int | None = None
    """Rows of the column's table, where its values are ranges or parts of times, whose number no count changes."""


@dataclass(frozen=True)
class DenseColumn:
    name: str
    values: NDArray[np.float64]
    """[n], finite values, or NaN = missing."""

    @cached_property
    def distinct_and_codes(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The k distinct present values, ascending, and the index of each row's value among them [n], -1 = missing."""
        is_present = ~np.isnan(self.values)
        distinct, present = np.unique(self.values[is_present], return_inverse=True)
        codes = np.full(len(self.values), -1, dtype=np.int64)
        codes[is_present] = present
        return distinct, codes


@dataclass(frozen=True)
class Names:
    """Names of the inspected columns."""

    dense: Sequence[str]
    categorical: Sequence[str]
    table_rows: Sequence[int] | None = None
    """Rows of each categorical column's table, where values are row numbers of tables already."""
    num_ranges: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of ranges into which a categorical column's numbers are divided, by name."""
    fixed_rows: Mapping[str, int] = field(default_factory=dict[str, int])
    """Rows of a table that the schema fixes, by name of the categorical column."""
    only_dense: Collection[str] = ()
    """Dense columns of plain numbers in raw rows that have no other use."""

    @classmethod
    def from_schema(cls, schema: SchemaConfig) -> "Names":
        """Return the names of the features of raw rows."""
        columns = schema.categorical
        return cls(
            [column.feature for column in schema.dense],
            [column.feature for column in columns],
            num_ranges={column.feature: column.bucketize for column in columns if column.bucketize},
            fixed_rows={column.feature: column.max_table_rows for column in columns if column.max_table_rows},
            only_dense={
                column.name for column in schema.dense if column.decimal_mark is None and column.element is None
            }
            - {column.name for column in columns},
        )


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
    num_bad_rows: int
    """Number of bad rows among the rows that were read."""
    faults: Sequence[DataError]
    """Errors of the first bad rows."""

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
        name = self.names.categorical[index]
        column = CategoricalColumn(
            name,
            np.concatenate(codes),
            distinct,
            np.concatenate(lengths) if lengths else None,
            self.names.table_rows[index] if self.names.table_rows else None,
            self.names.fixed_rows.get(name),
        )
        return _divide_into_ranges(column, self.names.num_ranges[name]) if name in self.names.num_ranges else column


def _divide_into_ranges(column: CategoricalColumn, num_ranges: int) -> CategoricalColumn:
    """Replace the numbers of a column by the names of their ranges, in ascending order of the ranges."""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.distinct))
    vocabulary = RangeVocabulary.divide(column.distinct.to_numpy(), counts, num_ranges)
    # Code -1, a missing value, indexes the last element.
    codes = np.append(vocabulary.encode(column.distinct) - 1, -1)[column.codes]
    # A column without any value has no range either.
    names = vocabulary.names if len(column.distinct) else []
    return replace(column, codes=codes, distinct=pl.Series(names, dtype=pl.String))


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
