"""The order of rows in time: window by window of a log that goes on, the same however much of it is there yet."""

import numpy as np
from numpy.typing import NDArray

from dlrm.config.data import WINDOW_BLOCKS
from dlrm.data.order import BlockHalves, OrderedRows, make_generator
from dlrm.data.rows import Runs


class TimeOrder:
    """One pass over the rows in order of time; a batch is a range of positions in it.

    Window k has rows k M to (k + 1) M - 1, the last one the rows that are left. Its rows are shuffled in two steps, as
    in `SampleOrder`: its blocks of M / WINDOW_BLOCKS neighbouring rows are put in random order, then all its rows. A
    batch begins with the rows from the first half of each window's blocks. The order within a window depends on the
    seed and on the number of the window alone, so that a log may grow by whole windows while it is trained on.
    """

    def __init__(self, num_rows: int, seed: int, window_rows: int) -> None:
        """Lay out the windows. window_rows: M, a multiple of WINDOW_BLOCKS."""
        self._num_rows, self._seed, self._window_rows = num_rows, seed, window_rows
        self._block_rows = window_rows // WINDOW_BLOCKS
        self._window = -1
        self._rows_of_window = np.empty(0, dtype=np.int64)
        self._is_first_half = np.empty(0, dtype=np.bool_)
        """Mask of `_rows_of_window`: rows in the first half of its blocks."""

    def find_rows(self, start: int, end: int) -> OrderedRows:
        """Find the rows at positions [start, end), at least one.

        Batches of one window draw on the same blocks, and the log has no end, so that the coverage of the halves is 0.
        """
        first, last = self.find_windows(start, end)
        rows: list[NDArray[np.int64]] = []
        is_first_half: list[NDArray[np.bool_]] = []
        for window in range(first, last + 1):
            before = window * self._window_rows
            self._shuffle(window)
            selected = slice(max(start - before, 0), end - before)
            rows.append(self._rows_of_window[selected])
            is_first_half.append(self._is_first_half[selected])
        row_numbers, is_first = np.concatenate(rows), np.concatenate(is_first_half)
        ordered = np.concatenate([row_numbers[is_first], row_numbers[~is_first]])
        return OrderedRows(ordered, BlockHalves(int(is_first.sum()), 0.0, first))

    def find_windows(self, start: int, end: int) -> tuple[int, int]:
        """Find the first and the last window that contain positions of [start, end)."""
        return start // self._window_rows, (end - 1) // self._window_rows

    def get_runs(self, first: int, last: int) -> Runs:
        """Return the rows of windows `first` to `last`, both included, as one run of row numbers of the source."""
        end = min((last + 1) * self._window_rows, self._num_rows)
        return Runs(np.array([first * self._window_rows]), np.array([end]))

    def _shuffle(self, window: int) -> None:
        """Compute and keep the shuffled row numbers of a window, unless they are kept already."""
        if window == self._window:
            return
        start = window * self._window_rows
        num_blocks = -(-min(self._window_rows, self._num_rows - start) // self._block_rows)
        generator = make_generator(self._seed, 0, 1 + window)
        blocks = generator.permutation(num_blocks)
        rows = (blocks[:, None] * self._block_rows + np.arange(self._block_rows, dtype=np.int64)).reshape(-1) + start
        rows = rows[rows < self._num_rows]
        generator.shuffle(rows)
        is_first_half = np.zeros(num_blocks, dtype=np.bool_)
        is_first_half[blocks[: num_blocks // 2]] = True
        self._window, self._rows_of_window = window, rows
        self._is_first_half = is_first_half[(rows - start) // self._block_rows]
