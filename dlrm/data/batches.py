"""Batches of one rank: its share of every global batch, for training and for evaluation."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlrm.config import compute_full_rows, count_run_rows
from dlrm.data.order import BlockHalves, SampleOrder
from dlrm.data.rows import NumpyIds, RowSource, Runs, pad_with_empty_bags
from dlrm.data.threads import prefetch
from dlrm.data.time_order import TimeOrder

Number = TypeVar("Number", bound=np.generic)

_MAX_ORDERS_AHEAD = 16
"""Batches whose order is found ahead, at most. To shuffle a window takes tens of milliseconds, in which the rows of
several small batches are read."""
_MAX_ROWS_AHEAD = 1 << 20
"""Rows in the order of these batches, at most, but for two batches: row numbers of 8 MiB."""


@dataclass(frozen=True)
class Batch:
    """One rank's share of a global batch: b rows, padded with empty rows where the global batch is short."""

    index: int
    """Number of the global batch, counted from 0 through all epochs."""
    dense: NDArray[np.float32]
    """[b, N] dense features."""
    ids: NumpyIds
    """Ids of F features of b rows; empty rows have empty bags."""
    labels: NDArray[np.float32]
    """[b] labels, 0 or 1; [b, T] if there are further tasks, NaN where one is missing."""
    mask: NDArray[np.float32]
    """[b] mask: 1 for rows, 0 for empty rows, which come last and hold zeros."""
    weights: NDArray[np.float32] | None
    """[b] weights of the rows, 0 for empty rows; None if all rows have the same weight."""
    num_valid: int
    """Rows of the GLOBAL batch, empty ones not counted; computed from its index, without communication."""
    halves: BlockHalves | None = None
    """Halves of the GLOBAL batch by blocks of the data; None if its rows are in uniformly random order."""


@dataclass(frozen=True)
class _BatchOrder:
    """Rows of one rank's share of a global batch, which are not yet read."""

    index: int
    row_numbers: NDArray[np.int64]
    """[b] or fewer row numbers."""
    num_valid: int
    """Rows of the GLOBAL batch."""
    halves: BlockHalves | None
    windows: tuple[Runs, Runs] | None
    """Rows of the batch's windows, and of the window after them; None if the batch before has the same windows."""


class TrainBatches:
    """Iterator over one rank's batches of one size, in the global order, prepared ahead by a background thread.

    The batches make up a whole run, or a stage of one. A batch may cross the end of an epoch, so that only the last
    batch of the run can be short. If an epoch has fewer rows than B, each batch is an epoch.

    Rank r of W takes rows r, r + W, r + 2 W, ... of every global batch, so that the first rows of the global batch are
    also the first rows of the ranks' shares. If the batch is cut into groups, row i belongs to group
    i mod `num_groups`, and a share contains its groups one after another. Iterating raises the errors of the thread.
    Leaving the context manager ends the thread.
    """

    def __init__(
        self,
        source: RowSource,
        global_size: int,
        rank: int,
        world_size: int,
        seed: int,
        num_epochs: float,
        num_groups: int | None = None,
        start_batch: int = 0,
        start_row: int = 0,
        end_row: int | None = None,
        window_rows: int | None = None,
        *,
        is_order_ahead: bool = False,
    ) -> None:
        """Set up the batches of rank `rank`, without reading any rows yet.

        global_size: B, rows of a global batch. num_epochs: passes over the rows; a fraction reads a share of them.
        num_groups: groups that a global batch is cut into, a multiple of the ranks; None: one for each rank.
        start_batch, start_row: number of batches of the run before these, and of the rows in them. end_row: position
        behind the last row; None: the end of the run. window_rows: as in `TimeOrder`; None: shuffled. is_order_ahead:
        find orders in a thread of their own, which gets more rows out of several cores, and takes more of a single one.
        Raises ValueError if B or `num_groups` is not divisible by the ranks.
        """
        num_groups = num_groups or world_size
        for name, size in (("global_size", global_size), ("num_groups", num_groups)):
            if size % world_size:
                raise ValueError(f"{name} {size} is not divisible by {world_size} ranks")
        self._source, self._share_size = source, global_size // world_size
        self._groups = [slice(group, None, num_groups) for group in range(rank, num_groups, world_size)]
        self._order = (
            SampleOrder(source.num_rows, seed, source.row_bytes)
            if window_rows is None
            else TimeOrder(source.num_rows, seed, window_rows)
        )
        self._start_batch, self._start_row = start_batch, start_row
        self._full_rows = compute_full_rows(global_size, source.num_rows)
        num_rows = count_run_rows(source.num_rows, num_epochs)
        self._end_row = num_rows if end_row is None else end_row
        self.num_batches = start_batch + -(-(self._end_row - start_row) // self._full_rows)
        """Number of batches up to the last of these, including those before `start_batch`."""
        self._last_window = self._order.find_windows(num_rows - 1, num_rows)[1]
        self._announced = (-1, -1)
        """First and last window that are being read, as last announced to the source."""
        numbers = range(start_batch, self.num_batches)
        if is_order_ahead:
            num_ahead = max(2, min(_MAX_ORDERS_AHEAD, _MAX_ROWS_AHEAD // self._share_size))
            self._orders = prefetch(self._find_order, numbers, num_ahead)
            self._batches = prefetch(self._read, self._orders)
        else:
            self._orders = None
            self._batches = prefetch(lambda number: self._read(self._find_order(number)), numbers)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.close()
        if self._orders is not None:
            self._orders.close()

    def _find_order(self, index: int) -> _BatchOrder:
        start = self._start_row + (index - self._start_batch) * self._full_rows
        end = min(start + self._full_rows, self._end_row)
        windows = self._find_new_windows(start, end)
        rows = self._order.find_rows(start, end)
        row_numbers = np.concatenate([rows.row_numbers[group] for group in self._groups])
        return _BatchOrder(index, row_numbers, end - start, rows.halves, windows)

    def _find_new_windows(self, start: int, end: int) -> tuple[Runs, Runs] | None:
        """Find the rows of the windows of positions [start, end), and of the next one, to be fetched meanwhile.

        Return None if the last call had the same windows.
        """
        first, last = self._order.find_windows(start, end)
        if self._announced == (first, last):
            return None
        self._announced = first, last
        after = min(last + 1, self._last_window)
        return self._order.get_runs(first, last), self._order.get_runs(after, after)

    def _read(self, order: _BatchOrder) -> Batch:
        if order.windows is not None:
            self._source.look_ahead(*order.windows)
        return _read_batch(
            self._source, order.row_numbers, self._share_size, order.index, order.num_valid, order.halves
        )


def read_evaluation_batches(
    source: RowSource, batch_size_per_rank: int, rank: int, world_size: int
) -> Generator[Batch, None, None]:
    """Yield this rank's batches of an evaluation; over all ranks they hold every row of `source` once.

    Rows keep the order of `source`. Every rank yields the same number of batches.
    """
    global_size = batch_size_per_rank * world_size

    def make_batch(index: int) -> Batch:
        end = min((index + 1) * global_size, source.num_rows)
        # Each rank takes one contiguous run of rows: the source reads neighbouring rows together.
        first = min(index * global_size + rank * batch_size_per_rank, end)
        row_numbers = np.arange(first, min(first + batch_size_per_rank, end), dtype=np.int64)
        return _read_batch(source, row_numbers, batch_size_per_rank, index, end - index * global_size)

    return prefetch(make_batch, range(-(-source.num_rows // global_size)))


def _read_batch(
    source: RowSource,
    row_numbers: NDArray[np.int64],
    share_size: int,
    index: int,
    num_valid: int,
    halves: BlockHalves | None = None,
) -> Batch:
    """Read one rank's rows of a global batch of `num_valid` rows, and pad them to `share_size` with empty rows."""
    rows = source.read(row_numbers)
    num_empty = share_size - rows.num_rows
    return Batch(
        index=index,
        dense=_pad_with_zeros(rows.dense, num_empty),
        ids=pad_with_empty_bags(rows.ids, num_empty),
        labels=_pad_with_zeros(rows.all_labels, num_empty),
        mask=_pad_with_zeros(np.ones(rows.num_rows, dtype=np.float32), num_empty),
        weights=None if rows.weights is None else _pad_with_zeros(rows.weights, num_empty),
        num_valid=num_valid,
        halves=halves,
    )


def _pad_with_zeros(array: NDArray[Number], num_empty: int) -> NDArray[Number]:
    """Append `num_empty` rows of zeros; return `array` itself if there are none, as `np.pad` would copy it."""
    if num_empty == 0:
        return array
    return np.pad(array, [(0, num_empty), *[(0, 0)] * (array.ndim - 1)])
