"""This rank's part of every global batch."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlrm.data.order import SampleOrder
from dlrm.data.prefetch import prefetched
from dlrm.data.rows import Bags, RowSource

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Batch:
    """b rows, one rank's share of a global batch; where the global batch is short, empty rows fill it up."""

    index: int
    """Of the global batch, counted from 0 through all epochs."""
    dense: NDArray[np.float32]
    """[b, N]."""
    bags: Bags
    """Of F features over b rows; those of empty rows are empty."""
    labels: NDArray[np.float32]
    """[b]."""
    mask: NDArray[np.float32]
    """[b], 1 for rows and 0 for empty ones, which come last and hold zeros."""
    weights: NDArray[np.float32] | None
    """[b], how much each row counts, 0 for empty ones; None: all rows the same."""
    num_valid: int
    """Rows of the GLOBAL batch: known from its index, without exchange."""


class TrainBatches:
    """A rank's batches of a whole run, in the global order, prepared ahead by one thread.

    Rank r takes rows [r b, (r + 1) b) of every global batch. An error in the thread is raised by the iteration. Used as
    a context manager it ends its thread.
    """

    def __init__(
        self,
        source: RowSource,
        global_size: int,
        rank: int,
        world_size: int,
        seed: int,
        num_epochs: int,
        start_batch: int = 0,
    ) -> None:
        """start_batch: batches already consumed, where a run goes on. Raises ValueError if the sizes do not divide."""
        if global_size % world_size:
            raise ValueError(f"global_size {global_size} is not divisible by {world_size} ranks")
        self._source, self._rank, self._share_size = source, rank, global_size // world_size
        self._order = SampleOrder(source.num_rows, global_size, seed, source.row_bytes)
        self.num_batches = self._order.num_batches_per_epoch * num_epochs
        """Of the whole run, those before `start_batch` included."""
        self._last_window = self._order.num_windows_per_epoch * num_epochs - 1
        self._told = (-1, -1)
        """The windows that the source was told of last: the first and the last that are read now."""
        self._batches = prefetched(self._batch, range(start_batch, self.num_batches))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return next(self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.close()

    def _batch(self, index: int) -> Batch:
        self._look_ahead(index)
        row_numbers = self._order.rows(index)
        return _share(self._source, row_numbers, self._rank, self._share_size, index)

    def _look_ahead(self, index: int) -> None:
        """Tell of this batch's windows and the one behind, which is fetched while theirs are read."""
        first, last = self._order.windows(index)
        if self._told != (first, last):
            after = min(last + 1, self._last_window)
            self._source.look_ahead(self._order.runs(first, last), self._order.runs(after, after))
            self._told = first, last


def evaluation_batches(
    source: RowSource, batch_size_per_rank: int, rank: int, world_size: int
) -> Generator[Batch, None, None]:
    """Every row of `source` once over all ranks, in their own order; the same number of batches on each."""
    global_size = batch_size_per_rank * world_size

    def batch(index: int) -> Batch:
        end = min((index + 1) * global_size, source.num_rows)
        row_numbers = np.arange(index * global_size, end, dtype=np.int64)
        return _share(source, row_numbers, rank, batch_size_per_rank, index)

    return prefetched(batch, range(-(-source.num_rows // global_size)))


def _share(source: RowSource, row_numbers: NDArray[np.int64], rank: int, share_size: int, index: int) -> Batch:
    """Rows [rank * b, (rank + 1) * b) of the global batch of these row numbers, filled up to b."""
    rows = source.read(row_numbers[rank * share_size : (rank + 1) * share_size])
    num_empty = share_size - rows.num_rows
    return Batch(
        index=index,
        dense=_filled(rows.dense, num_empty),
        bags=rows.bags.padded(num_empty),
        labels=_filled(rows.labels, num_empty),
        mask=_filled(np.ones(rows.num_rows, dtype=np.float32), num_empty),
        weights=None if rows.weights is None else _filled(rows.weights, num_empty),
        num_valid=len(row_numbers),
    )


def _filled(array: NDArray[Number], num_empty: int) -> NDArray[Number]:
    """`array` with rows of zeros behind it; itself where nothing is missing: `np.pad` would copy every batch."""
    if num_empty == 0:
        return array
    return np.pad(array, [(0, num_empty), *[(0, 0)] * (array.ndim - 1)])
