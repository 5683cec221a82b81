"""Selection of the rows to inspect, from every kind of data, and these rows column by column.

All rows are inspected if they are few, else some, evenly spread.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.encode.vocabulary import RangeVocabulary
from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.file_sample import spread_evenly
from dlrm.data.open import open_data
from dlrm.data.raw.block import MAX_SHOWN_FAULTS, Block, CategoricalValues, Parsed, RawTable
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.rows import Feature, NumpyIds, RowSource
from dlrm.data.synthetic.log import DENSE_NAMES
from sharding.counter_random import random_units, stream_key

_FITTED_ON_KEY = stream_key(0x1EAC)
"""Random stream that splits the rows into halves; fixed, so that the same data always gives the same report."""

MissingIds = Sequence[tuple[int, ...] | None]
"""Table rows of a missing value, by feature; None if it is not known."""


@dataclass(frozen=True, kw_only=True)
class CategoricalColumn(CategoricalValues):
    """The values of one categorical column in the n inspected rows; names of ranges if the column is divided so."""

    name: str
    table_rows: int | None = None
    """Rows of the column's table, where its values are row numbers of a table already."""
    fixed_rows: int | None = None
    """Rows of the column's table, where its values are ranges or parts of times, whose number no count changes."""
    target: str | None = None
    """Column whose table the values are read from, if they are sequences; None if the column has a table of its own."""


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
    targets: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column whose table a categorical column of sequences reads, by name."""
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
            targets={column.feature: column.sequence.target for column in columns if column.sequence is not None},
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
            np.concatenate(codes),
            distinct,
            np.concatenate(lengths) if lengths else None,
            name=name,
            table_rows=self.names.table_rows[index] if self.names.table_rows else None,
            fixed_rows=self.names.fixed_rows.get(name),
            target=self.names.targets.get(name),
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


MAX_BYTES = 1 << 30
"""Largest number of bytes of rows kept in memory at once."""
MAX_COLUMN_BYTES = MAX_BYTES // 8
"""Largest number of bytes of one column of these rows: inspecting it takes several times as much memory."""
CODE_BYTES = 8
MIN_BLOCKS = 50
"""Least number of blocks to read rows from, if there are as many and not all rows are inspected."""

OnRows = Callable[[int, float], None]
"""Callback that receives the number of rows read so far and the share of the work done, from 0 to 1."""


class Gatherer:
    """Collector of the rows to inspect, from blocks."""

    def __init__(self, names: Names, max_rows: int, num_bytes: int) -> None:
        """Prepare to collect at most `max_rows` rows. num_bytes: bytes of all blocks together.

        Fewer rows are collected where MAX_BYTES or MAX_COLUMN_BYTES would be exceeded.
        """
        self._names = names
        self._max_rows = max_rows
        self._num_bytes = max(num_bytes, 1)
        self._reset()

    def _reset(self) -> None:
        self._tables: list[RawTable] = []
        self._numbers: list[NDArray[np.int64]] = []
        self._column_bytes: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._num_requested = 0
        self._step = 1
        """Ratio of requested to kept rows: one in `_step` is kept."""
        self._num_bad_rows = 0
        self._faults: list[DataError] = []

    def gather(self, blocks: Callable[[], Iterable[Block]], on_rows: OnRows) -> InspectedRows:
        """Collect the rows to inspect. Raises DataError if data cannot be read or no row is good.

        blocks: returns all blocks of the data from its beginning at each call; called twice where not all rows are
        kept.
        """
        sizes = self._add_all_or_count(blocks(), on_rows)
        num_rows = sum(sizes)
        if not self._has_all:
            self._reset()
            for block, start, num_requested in self._choose_blocks(blocks(), sizes):
                self._add_rows(block, start, num_requested)
                on_rows(num_rows, 0.5 + 0.5 * start / num_rows)
        if not self._tables:
            raise self._faults[0] if self._faults else DataError("there are no rows", valid="files with rows")
        numbers, faults = np.concatenate(self._numbers), self._faults[:MAX_SHOWN_FAULTS]
        return InspectedRows(self._tables, numbers, self._names, num_rows, self._num_bad_rows, faults)

    def _add_all_or_count(self, blocks: Iterable[Block], on_rows: OnRows) -> list[int]:
        """Keep all rows unless there are too many. Return the number of rows of each block."""
        sizes: list[int] = []
        num_rows = num_bytes = 0
        self._has_all = True
        for block in blocks:
            sizes.append(block.num_rows)
            num_rows += block.num_rows
            num_bytes += block.num_bytes
            num_expected = max(num_rows, num_rows * self._num_bytes / max(num_bytes, 1))
            # Stop keeping rows once too many are expected: those of the first blocks alone are not evenly spread.
            self._has_all = self._has_all and num_expected <= self._max_rows
            if self._has_all:
                self._add_rows(block, num_rows - block.num_rows, block.num_rows)
                self._has_all = self._step == 1
            on_rows(num_rows, num_bytes / self._num_bytes / (1 if self._has_all else 2))
        return sizes

    def _choose_blocks(self, blocks: Iterable[Block], sizes: list[int]) -> Iterator[tuple[Block, int, int]]:
        """Choose some blocks. Yield each with the number of its first row and the number of its rows to keep."""
        num_enough = -(-self._max_rows * len(sizes) // sum(sizes))
        indices = set(spread_evenly(len(sizes), max(num_enough, MIN_BLOCKS)))
        share = self._max_rows / sum(sizes[index] for index in indices)
        start = 0
        for index, block in enumerate(blocks):
            if index in indices:
                yield block, start, min(block.num_rows, int(block.num_rows * share))
            start += block.num_rows

    def _add_rows(self, block: Block, start: int, num_requested: int) -> None:
        parsed = block.parse(True)
        good = np.arange(block.num_rows) if parsed.good is None else np.flatnonzero(parsed.good)
        self._num_bad_rows += block.num_rows - len(good)
        self._faults += parsed.faults
        rows = np.array(spread_evenly(len(good), num_requested) if len(good) else [], dtype=np.int64)
        is_kept = (self._num_requested + np.arange(len(rows))) % self._step == 0
        self._num_requested += len(rows)
        self._keep(parsed.table, rows[is_kept], start + good)
        while self._num_requested > self._step and (
            self._column_bytes.sum() > MAX_BYTES or self._column_bytes.max() > MAX_COLUMN_BYTES
        ):
            self._thin()

    def _keep(self, table: RawTable, rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        if len(rows):
            self._tables.append(select_rows(table, rows))
            self._numbers.append(numbers[rows])
            # Codes are inspected in a wider type than they are kept in.
            columns = self._tables[-1].categorical
            sizes = [column.distinct.estimated_size() + CODE_BYTES * len(column.codes) for column in columns]
            sizes = [column.nbytes for column in self._tables[-1].dense] + sizes
            self._column_bytes = self._column_bytes + np.array(sizes, dtype=np.int64)

    def _thin(self) -> None:
        """Drop every second row kept, and keep half as many from now on."""
        kept = list(zip(self._tables, self._numbers, strict=True))
        self._step *= 2
        self._tables, self._numbers, self._column_bytes = [], [], np.zeros(1, dtype=np.int64)
        first = 0
        for table, numbers in kept:
            self._keep(table, np.arange(first % 2, table.num_rows, 2), numbers)
            first += table.num_rows


_BLOCK_ROWS, _BLOCK_BYTES = 1 << 16, 32 << 20
"""Rows and bytes that are read at a time, whichever is reached first."""


def gather(config: DataConfig, max_rows: int, on_rows: OnRows) -> InspectedRows:
    """Gather at most `max_rows` training rows of the data to inspect. Raises DataError."""
    if config.is_raw:
        files = find_files(config.train, "data.train", None, Path())
        schema = config.raw_schema
        names = Names.from_schema(schema)
        gatherer = Gatherer(names, max_rows, sum(file.num_bytes for file in files))
        return gatherer.gather(lambda: cut_blocks(config, files), on_rows)
    data = open_data(config, None, None)
    features = data.schema.features
    names = Names(
        data.encoders.dense_names if data.encoders else DENSE_NAMES,
        [feature.name for feature in features],
        [feature.num_ids for feature in features],
        targets={
            feature.name: features[feature.sequence.target].name for feature in features if feature.sequence is not None
        },
    )
    missing_ids: MissingIds = [None] * len(features)
    if data.encoders is not None:
        missing_ids = [vocabulary.missing_ids for vocabulary in data.encoders.vocabularies]
    gatherer = Gatherer(names, max_rows, data.train.num_rows)
    return gatherer.gather(lambda: _cut_encoded_blocks(data.train, missing_ids), on_rows)


def _cut_encoded_blocks(source: RowSource, missing_ids: MissingIds) -> Iterator[Block]:
    """Yield encoded rows in the form of raw rows: their categorical values are row numbers of tables.

    Values of several rows are texts such as "3 + 17".
    """
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // source.row_bytes))
    for start in range(0, source.num_rows, block_rows):
        num_rows = min(block_rows, source.num_rows - start)
        yield Block("", num_rows, num_rows, partial(_parse, source, start, num_rows, missing_ids))


def _parse(
    source: RowSource,
    start: int,
    num_rows: int,
    missing_ids: MissingIds,
    keep_going: bool,  # noqa: ARG001, there are no bad rows
) -> Parsed:
    rows = source.read(np.arange(start, start + num_rows, dtype=np.int64))
    dense = [column.astype(np.float64) for column in rows.dense.T]
    columns = _make_columns(rows.ids, source.schema.features, missing_ids)
    return Parsed(RawTable(rows.labels, rows.weights, dense, columns))


def _make_columns(bags: NumpyIds, features: Sequence[Feature], missing_ids: MissingIds) -> list[CategoricalValues]:
    ends = np.cumsum(bags.lengths.sum(axis=1, dtype=np.int64))
    columns: list[CategoricalValues] = []
    # The part after the last end is empty.
    parts = np.split(bags.values, ends)[:-1]
    for feature, ids, lengths, of_missing in zip(features, parts, bags.lengths, missing_ids, strict=True):
        k = feature.ids_per_value
        distinct, inverse = np.unique(ids.reshape(-1, k), axis=0, return_inverse=True)
        codes = inverse.reshape(-1).astype(np.int32)
        if of_missing is not None and (is_missing := (distinct == of_missing).all(axis=1)).any():
            missing = int(np.argmax(is_missing))
            codes = np.where(codes == missing, -1, codes - (codes > missing)).astype(np.int32)
            distinct = np.delete(distinct, missing, axis=0)
        values = distinct[:, 0] if k == 1 else [" + ".join(map(str, rows)) for rows in distinct.tolist()]
        series = pl.Series(values, dtype=pl.Int64 if k == 1 else pl.String)
        columns.append(CategoricalValues(codes, series, lengths // k if feature.is_multi_hot else None))
    return columns
