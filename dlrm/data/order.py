"""The global sample order: a function of (seed, epoch, batch) and the data, the same for any number of ranks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.rows import Runs

WINDOW_BYTES = 256 << 20
BLOCKS_PER_WINDOW = 1024
"""Few large blocks would make the rows of a window alike; many small ones, of 256 KiB here, still read well."""
MIN_WINDOW_ROWS = 1 << 16
MAX_WINDOW_ROWS = 1 << 21


@dataclass(frozen=True)
class _Epoch:
    """How one epoch goes through the blocks."""

    number: int
    blocks: NDArray[np.int64]
    """Every block's number, in the order of this epoch."""
    window_starts: NDArray[np.int64]
    """[num_windows + 1], how many rows of the epoch come before each window."""


class SampleOrder:
    """Every epoch is a permutation of all rows, cut into global batches, of which the last may be short.

    Batches are numbered through all epochs, and so are windows. Rows are cut into blocks as they lie in the data,
    BLOCKS_PER_WINDOW to a window; an epoch takes the blocks in an order of its own, a window of them at a time, and
    shuffles the rows of a window (Fisher-Yates). Windows are of one size, about WINDOW_BYTES, to within a block.
    Nothing but the numbers of one window's rows is kept (at most 16 MiB), and the rows of a batch are found without
    those before it.

    How far that is from a uniform permutation, for n rows in k blocks of R, windows of m blocks and M = m R rows:
    - Rows within one window (k <= m): not at all.
    - A row is equally likely at every place of the epoch, but for the one short block.
    - Two rows of one block are always in the same window: in one batch of B <= M rows with probability about B / M
      where a uniform order has B / n, which is k / m times as often. Rows further apart than a block share a window
      with probability (m - 1) / (k - 1), as in a uniform order.
    - All batches of a window draw on its m blocks alone. Where the means of blocks differ, as in data sorted by time,
      with a standard deviation s, the mean of a window is off by s sqrt((k - m) / (k - 1) / m), and the batches in it
      together: 0.03 s where the data is much larger than a window.

    The rows of a batch come in their random order and must stay in it: any run of a batch is a sample like any other,
    and estimators that cut a batch into groups depend on that.
    """

    def __init__(self, num_rows: int, global_size: int, seed: int, row_bytes: int) -> None:
        """row_bytes: of a row as stored, on average; it sets how many rows a window has."""
        self._num_rows, self._global_size, self._seed = num_rows, global_size, seed
        self.num_batches_per_epoch = -(-num_rows // global_size)
        window_rows = min(max(WINDOW_BYTES // max(row_bytes, 1), MIN_WINDOW_ROWS), MAX_WINDOW_ROWS)
        self.num_windows_per_epoch = -(-num_rows // window_rows)
        self._block_rows = window_rows // BLOCKS_PER_WINDOW
        self._num_blocks = -(-num_rows // self._block_rows)
        self._first_blocks = (
            np.arange(self.num_windows_per_epoch + 1, dtype=np.int64) * self._num_blocks // self.num_windows_per_epoch
        )
        self._epoch: _Epoch | None = None
        self._window = -1
        self._rows_of_window = np.empty(0, dtype=np.int64)

    def epoch(self, index: int) -> int:
        """The epoch of batch `index`, counted from 0."""
        return index // self.num_batches_per_epoch

    def rows(self, index: int) -> NDArray[np.int64]:
        """Row numbers of global batch `index`: global_size of them, or what is left in an epoch's last batch."""
        first, last = self.windows(index)
        start, stop = self._places(index)
        parts: list[NDArray[np.int64]] = []
        for window in range(first, last + 1):
            before = self._start_of(window)
            parts.append(self._shuffled(window)[max(start - before, 0) : stop - before])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def windows(self, index: int) -> tuple[int, int]:
        """The first and the last window that global batch `index` has rows of."""
        epoch = self.epoch(index)
        start, stop = self._places(index)
        first, last = np.searchsorted(self._of_epoch(epoch).window_starts, [start, stop - 1], side="right") - 1
        before = epoch * self.num_windows_per_epoch
        return before + int(first), before + int(last)

    def runs(self, first: int, last: int) -> Runs:
        """Where the rows of windows `first` to `last` lie: their blocks."""
        blocks = [self._blocks(window) for window in range(first, last + 1)]
        starts = np.unique(np.concatenate(blocks)) * self._block_rows
        return Runs(starts, np.minimum(starts + self._block_rows, self._num_rows))

    def _places(self, index: int) -> tuple[int, int]:
        """Global batch `index` in its epoch: rows [start, stop) of it."""
        start = index % self.num_batches_per_epoch * self._global_size
        return start, min(start + self._global_size, self._num_rows)

    def _start_of(self, window: int) -> int:
        epoch, number = divmod(window, self.num_windows_per_epoch)
        return int(self._of_epoch(epoch).window_starts[number])

    def _blocks(self, window: int) -> NDArray[np.int64]:
        epoch, number = divmod(window, self.num_windows_per_epoch)
        return self._of_epoch(epoch).blocks[self._first_blocks[number] : self._first_blocks[number + 1]]

    def _shuffled(self, window: int) -> NDArray[np.int64]:
        """The row numbers of a window, in the order of its epoch."""
        if window != self._window:
            starts = self._blocks(window) * self._block_rows
            rows = (starts[:, None] + np.arange(self._block_rows, dtype=np.int64)).reshape(-1)
            rows = rows[rows < self._num_rows]
            epoch, number = divmod(window, self.num_windows_per_epoch)
            self._generator(epoch, 1 + number).shuffle(rows)
            self._window, self._rows_of_window = window, rows
        return self._rows_of_window

    def _of_epoch(self, number: int) -> _Epoch:
        if self._epoch is None or self._epoch.number != number:
            blocks = self._generator(number, 0).permutation(self._num_blocks)
            last = self._num_blocks - 1
            num_missing = self._num_blocks * self._block_rows - self._num_rows
            is_behind_last = self._first_blocks > np.flatnonzero(blocks == last)[0]
            self._epoch = _Epoch(number, blocks, self._first_blocks * self._block_rows - is_behind_last * num_missing)
        return self._epoch

    def _generator(self, epoch: int, stream: int) -> np.random.Generator:
        """Of random numbers that no other (seed, epoch, stream) has: Philox counts up from the low end."""
        key = np.array([self._seed, epoch], dtype=np.uint64)
        counter = np.array([0, 0, 0, stream], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))
