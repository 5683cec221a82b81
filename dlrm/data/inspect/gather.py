"""Rows to look at: all of them where they are few, else some that are spread evenly."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.inspect.columns import LookedAt, Names, taken
from dlrm.data.inspect.sample import evenly
from dlrm.data.raw.block import MAX_SHOWN_FAULTS, Block
from dlrm.data.raw.table import RawTable

MAX_CELLS = 80_000_000
"""Rows times columns that are held in memory at once: about 1 GB at the worst."""
MIN_BLOCKS = 50
"""Of which rows are taken, where there are so many and not all rows are."""

OnRows = Callable[[int, float], None]
"""Told how many rows have been read and which share of the work is done."""


@dataclass(frozen=True)
class Gathered:
    """The rows that are looked at, and what stood in the way of others."""

    rows: LookedAt
    num_bad_rows: int
    """Among the rows of the blocks that were parsed."""
    faults: list[DataError]
    """Of the first bad rows."""


class Gatherer:
    """Takes rows from blocks."""

    def __init__(self, names: Names, max_rows: int, num_bytes: int) -> None:
        """max_rows: to be taken, fewer where MAX_CELLS allows no more. num_bytes: of all blocks."""
        self._names = names
        num_columns = len(names.dense) + len(names.categorical)
        self._max_rows = max(1, min(max_rows, MAX_CELLS // num_columns))
        self._num_bytes = max(num_bytes, 1)
        self._forget()

    def _forget(self) -> None:
        self._tables: list[RawTable] = []
        self._numbers: list[NDArray[np.int64]] = []
        self._num_bad_rows = 0
        self._faults: list[DataError] = []

    def gather(self, blocks: Callable[[], Iterable[Block]], on_rows: OnRows) -> Gathered:
        """blocks: all of the data from its beginning, at every call. Raises DataError."""
        sizes = self._take_all_or_count(blocks(), on_rows)
        num_rows = sum(sizes)
        if not self._tables and num_rows:
            for block, start, num_wanted in self._chosen(blocks(), sizes):
                self._take(block, start, num_wanted)
                on_rows(num_rows, 0.5 + 0.5 * start / num_rows)
        if not any(table.num_rows for table in self._tables):
            raise self._faults[0] if self._faults else DataError("there are no rows", valid="files with rows")
        looked_at = LookedAt(self._tables, np.concatenate(self._numbers), self._names, num_rows)
        return Gathered(looked_at, self._num_bad_rows, self._faults[:MAX_SHOWN_FAULTS])

    def _take_all_or_count(self, blocks: Iterable[Block], on_rows: OnRows) -> list[int]:
        """Take all rows, unless they turn out to be too many. Rows of each block."""
        sizes: list[int] = []
        num_rows = num_bytes = 0
        are_few = True
        for block in blocks:
            sizes.append(block.num_rows)
            num_rows += block.num_rows
            num_bytes += block.num_bytes
            num_expected = max(num_rows, num_rows * self._num_bytes / max(num_bytes, 1))
            if are_few and num_expected <= self._max_rows:
                self._take(block, num_rows - block.num_rows, block.num_rows)
            elif are_few:
                # Those of the first blocks would not be spread.
                are_few = False
                self._forget()
            on_rows(num_rows, num_bytes / self._num_bytes / (1 if are_few else 2))
        return sizes

    def _chosen(self, blocks: Iterable[Block], sizes: list[int]) -> Iterator[tuple[Block, int, int]]:
        """Some blocks, the number of the first row of each, and how many of its rows are wanted."""
        num_enough = -(-self._max_rows * len(sizes) // sum(sizes))
        places = set(evenly(len(sizes), max(num_enough, MIN_BLOCKS)))
        share = self._max_rows / sum(sizes[place] for place in places)
        start = 0
        for place, block in enumerate(blocks):
            if place in places:
                yield block, start, min(block.num_rows, int(block.num_rows * share))
            start += block.num_rows

    def _take(self, block: Block, start: int, num_wanted: int) -> None:
        parsed = block.parse(True)
        good = np.arange(block.num_rows) if parsed.good is None else np.flatnonzero(parsed.good)
        self._num_bad_rows += block.num_rows - len(good)
        self._faults += parsed.faults
        rows = np.array(evenly(len(good), num_wanted) if len(good) else [], dtype=np.int64)
        self._tables.append(taken(parsed.table, rows))
        self._numbers.append(start + good[rows])
