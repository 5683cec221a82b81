"""The global sample order: a function of seed, position and data size only, the same for any number of ranks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.config.data import WINDOW_BLOCKS
from dlrm.data.rows import Runs

WINDOW_BYTES = 256 << 20
"""Size of a shuffle window in bytes of stored rows, within the bounds of rows below."""
BLOCKS_PER_WINDOW = WINDOW_BLOCKS
"""Number of blocks in a window. With few large blocks the rows of a window would be too similar; blocks of 256 KiB,
as here, are still read from disk at good speed."""
MIN_WINDOW_ROWS = 1 << 16
MAX_WINDOW_ROWS = 1 << 21


@dataclass(frozen=True)
class BlockHalves:
    """Two halves of a batch that share no block of a window, for data of more blocks than one window.

    All batches of a window draw on the same blocks, so the mean gradient of a batch deviates by what these blocks have
    in common. The two halves allow this deviation to be estimated: see `Moments.noise`.
    """

    num_first: int
    """Rows of the first half of the GLOBAL batch; the rows after them come from other blocks of the same windows."""
    coverage: float
    """p, share of the data's blocks that the batch draws on, below 1; 0 of a log without end.

    With f_w the share of the batch's rows that are in window w, F_e the share in epoch e, and K windows in an epoch,
    p = sum F_e^2 / (K sum f_w^2); this is 1 / K for a batch within one window. Blocks are drawn without replacement
    within an epoch and independently of the epoch before, so a batch that crosses the end of an epoch may have the same
    block in both halves; this p corrects for that, too.
    """
    window: int
    """Number of the window that the batch begins in, through all epochs."""


@dataclass(frozen=True)
class OrderedRows:
    """Rows at consecutive positions of the global order."""

    row_numbers: NDArray[np.int64]
    """[n] row numbers."""
    halves: BlockHalves | None
    """Halves by blocks; None if the order is a uniform permutation."""


@dataclass(frozen=True)
class _Epoch:
    """The order of the blocks in one epoch."""

    number: int
    blocks: NDArray[np.int64]
    """[num_blocks] numbers of all blocks, in the order of this epoch."""
    window_starts: NDArray[np.int64]
    """[num_windows + 1] positions within the epoch at which the windows start; the last is the number of rows."""


def count_windows(num_rows: int, row_bytes: int) -> int:
    """Count the shuffle windows of an epoch. row_bytes: average bytes of a stored row."""
    return -(-num_rows // _compute_window_rows(row_bytes))


def make_generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    """Return a generator whose random numbers are independent of every other (seed, epoch, stream).

    The stream is the highest word of the counter, and Philox counts up from the lowest.
    """
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _compute_window_rows(row_bytes: int) -> int:
    return min(max(WINDOW_BYTES // max(row_bytes, 1), MIN_WINDOW_ROWS), MAX_WINDOW_ROWS)


class SampleOrder:
    """An endless sequence of epochs, each a permutation of all rows; a batch is a range of positions in it.

    Positions and windows are numbered through all epochs. Blocks are runs of neighbouring rows of the data,
    BLOCKS_PER_WINDOW to a window. Each epoch puts the blocks in a new random order, takes one window of them at a time,
    and shuffles the rows of the window (Fisher-Yates). All windows have the same size, about WINDOW_BYTES, to within a
    block. Only the row numbers of one window are kept in memory (at most 18 MiB), and the rows at a position are found
    without computing those before it.

    Difference from a uniform permutation, for n rows in k blocks of R rows, windows of m blocks and M = m R rows:
    - Data that fits into one window (k <= m): no difference.
    - A row is equally likely at every position of the epoch, except for rows of the one short block.
    - Two rows of the same block are always in the same window. They are in the same batch of B <= M rows with
      probability about B / M, against B / n in a uniform order: k / m times as often. Rows of different blocks share a
      window with probability (m - 1) / (k - 1), as in a uniform order.
    - All batches of a window draw only on its m blocks. If the means of blocks differ with standard deviation s, as
      in data sorted by time, the mean of a window deviates by s sqrt((k - m) / (k - 1) / m), and the means of all its
      batches deviate with it: by 0.03 s where the data is much larger than a window.

    If there are several windows, a batch begins with the rows from the first half of each window's blocks; within each
    of these two parts, and in data of one window, the order is random. Any run of rows within such a part is a random
    sample; estimators that cut a batch into groups depend on this.
    """

    def __init__(self, num_rows: int, seed: int, row_bytes: int) -> None:
        """Lay out the windows. row_bytes: average bytes of a stored row, which determines the rows of a window."""
        self._num_rows, self._seed = num_rows, seed
        self.num_windows_per_epoch = num_windows = count_windows(num_rows, row_bytes)
        self._block_rows = _compute_window_rows(row_bytes) // BLOCKS_PER_WINDOW
        self._num_blocks = -(-num_rows // self._block_rows)
        self._first_blocks = np.arange(num_windows + 1, dtype=np.int64) * self._num_blocks // num_windows
        self._epoch: _Epoch | None = None
        self._window = -1
        self._rows_of_window = np.empty(0, dtype=np.int64)
        self._is_first_half = np.empty(0, dtype=np.bool_)
        """Mask of `_rows_of_window`: rows in the first half of its blocks; empty if an epoch is one window."""

    def find_rows(self, start: int, end: int) -> OrderedRows:
        """Find the rows at positions [start, end), at least one."""
        first, last = self.find_windows(start, end)
        rows: list[NDArray[np.int64]] = []
        is_first_half: list[NDArray[np.bool_]] = []
        for window in range(first, last + 1):
            before = self._get_window_start(window)
            self._shuffle(window)
            selected = slice(max(start - before, 0), end - before)
            rows.append(self._rows_of_window[selected])
            is_first_half.append(self._is_first_half[selected])
        row_numbers = rows[0] if len(rows) == 1 else np.concatenate(rows)
        coverage = self._compute_coverage(first, [len(part) for part in rows])
        if coverage >= 1:
            return OrderedRows(row_numbers, None)
        is_first = np.concatenate(is_first_half)
        ordered = np.concatenate([row_numbers[is_first], row_numbers[~is_first]])
        return OrderedRows(ordered, BlockHalves(int(is_first.sum()), coverage, first))

    def _compute_coverage(self, first: int, counts: list[int]) -> float:
        """Compute `BlockHalves.coverage` of a batch with `counts[i]` rows in window `first + i`.

        Return 1 where an epoch is one window.
        """
        if self.num_windows_per_epoch == 1:
            return 1.0
        window_shares = np.array(counts) / sum(counts)
        epochs = np.arange(first, first + len(counts)) // self.num_windows_per_epoch
        epoch_shares = np.bincount(epochs - epochs[0], weights=window_shares)
        return float(np.square(epoch_shares).sum() / (self.num_windows_per_epoch * np.square(window_shares).sum()))

    def find_windows(self, start: int, end: int) -> tuple[int, int]:
        """Find the first and the last window that contain positions of [start, end)."""
        first, last = (self._find_window(position) for position in (start, end - 1))
        return first, last

    def get_runs(self, first: int, last: int) -> Runs:
        """Return the blocks of windows `first` to `last`, both included, as runs of row numbers of the source."""
        blocks = [self._get_blocks(window) for window in range(first, last + 1)]
        starts = np.unique(np.concatenate(blocks)) * self._block_rows
        return Runs(starts, np.minimum(starts + self._block_rows, self._num_rows))

    def _find_window(self, position: int) -> int:
        epoch, in_epoch = divmod(position, self._num_rows)
        number = np.searchsorted(self._get_epoch(epoch).window_starts, in_epoch, side="right") - 1
        return epoch * self.num_windows_per_epoch + int(number)

    def _get_window_start(self, window: int) -> int:
        epoch, number = divmod(window, self.num_windows_per_epoch)
        return epoch * self._num_rows + int(self._get_epoch(epoch).window_starts[number])

    def _get_blocks(self, window: int) -> NDArray[np.int64]:
        epoch, number = divmod(window, self.num_windows_per_epoch)
        return self._get_epoch(epoch).blocks[self._first_blocks[number] : self._first_blocks[number + 1]]

    def _shuffle(self, window: int) -> None:
        """Compute and keep the shuffled row numbers of a window, unless they are kept already."""
        if window == self._window:
            return
        blocks = self._get_blocks(window)
        rows = (blocks[:, None] * self._block_rows + np.arange(self._block_rows, dtype=np.int64)).reshape(-1)
        rows = rows[rows < self._num_rows]
        epoch, number = divmod(window, self.num_windows_per_epoch)
        make_generator(self._seed, epoch, 1 + number).shuffle(rows)
        self._window, self._rows_of_window = window, rows
        if self.num_windows_per_epoch > 1:
            is_first_half = np.zeros(self._num_blocks, dtype=np.bool_)
            is_first_half[blocks[: len(blocks) // 2]] = True
            self._is_first_half = is_first_half[rows // self._block_rows]

    def _get_epoch(self, number: int) -> _Epoch:
        if self._epoch is None or self._epoch.number != number:
            blocks = make_generator(self._seed, number, 0).permutation(self._num_blocks)
            last = self._num_blocks - 1
            num_missing = self._num_blocks * self._block_rows - self._num_rows
            is_after_last = self._first_blocks > np.flatnonzero(blocks == last)[0]
            self._epoch = _Epoch(number, blocks, self._first_blocks * self._block_rows - is_after_last * num_missing)
        return self._epoch
