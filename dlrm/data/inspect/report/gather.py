"""Selection of the rows to inspect, from every kind of data: all if they are few, else some, evenly spread."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.report.columns import InspectedRows, Names, select_rows
from dlrm.data.inspect.sample.file_sample import spread_evenly
from dlrm.data.open import open_data
from dlrm.data.raw.block import MAX_SHOWN_FAULTS, Block, CategoricalValues, Parsed, RawTable
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.rows import NumpyIds, RowSource
from dlrm.data.synthetic.log import DENSE_NAMES

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
            self._column_bytes = self._column_bytes + _estimate_column_bytes(self._tables[-1])

    def _thin(self) -> None:
        """Drop every second row kept, and keep half as many from now on."""
        kept = list(zip(self._tables, self._numbers, strict=True))
        self._step *= 2
        self._tables, self._numbers, self._column_bytes = [], [], np.zeros(1, dtype=np.int64)
        first = 0
        for table, numbers in kept:
            self._keep(table, np.arange(first % 2, table.num_rows, 2), numbers)
            first += table.num_rows


def _estimate_column_bytes(table: RawTable) -> NDArray[np.int64]:
    """Estimate the bytes [columns] of each column, dense ones first, with codes in the type they are inspected in."""
    categorical = [column.distinct.estimated_size() + CODE_BYTES * len(column.codes) for column in table.categorical]
    return np.array([column.nbytes for column in table.dense] + categorical, dtype=np.int64)


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
    )
    missing_ids = [None] * len(features)
    if data.encoders is not None:
        missing_ids = [vocabulary.missing_id for vocabulary in data.encoders.vocabularies]
    gatherer = Gatherer(names, max_rows, data.train.num_rows)
    return gatherer.gather(lambda: _cut_encoded_blocks(data.train, missing_ids), on_rows)


def _cut_encoded_blocks(source: RowSource, missing_ids: Sequence[int | None]) -> Iterator[Block]:
    """Yield encoded rows in the form of raw rows: their categorical values are row numbers of tables."""
    block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // source.row_bytes))
    for start in range(0, source.num_rows, block_rows):
        num_rows = min(block_rows, source.num_rows - start)
        yield Block("", num_rows, num_rows, partial(_parse, source, start, num_rows, missing_ids))


def _parse(
    source: RowSource,
    start: int,
    num_rows: int,
    missing_ids: Sequence[int | None],
    keep_going: bool,  # noqa: ARG001, there are no bad rows
) -> Parsed:
    rows = source.read(np.arange(start, start + num_rows, dtype=np.int64))
    dense = [column.astype(np.float64) for column in rows.dense.T]
    is_multi_hot = [feature.is_multi_hot for feature in source.schema.features]
    return Parsed(RawTable(rows.labels, rows.weights, dense, _make_columns(rows.ids, is_multi_hot, missing_ids)))


def _make_columns(
    bags: NumpyIds, is_multi_hot: Sequence[bool], missing_ids: Sequence[int | None]
) -> list[CategoricalValues]:
    ends = np.cumsum(bags.lengths.sum(axis=1, dtype=np.int64))
    columns: list[CategoricalValues] = []
    # The part after the last end is empty.
    for index, ids in enumerate(np.split(bags.values, ends)[:-1]):
        distinct, codes = np.unique(ids, return_inverse=True)
        codes = codes.astype(np.int32)
        missing_id = missing_ids[index]
        if missing_id is not None and missing_id in distinct:
            missing = int(np.searchsorted(distinct, missing_id))
            codes = np.where(codes == missing, -1, codes - (codes > missing)).astype(np.int32)
            distinct = np.delete(distinct, missing)
        lengths = bags.lengths[index] if is_multi_hot[index] else None
        columns.append(CategoricalValues(codes, pl.Series(distinct), lengths))
    return columns
