"""Pace of long work on the database: short transactions, between which everybody else has a turn."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

PIECE_SECONDS = 0.05
"""Time that a transaction should take."""
MIN_ROWS, MAX_ROWS = 50, 5000
"""Bounds on the rows of a transaction."""


class Pace:
    """Pace that chooses how many rows the next transaction changes, by the time of the last one."""

    def __init__(self, is_over: Callable[[], bool], wait: Callable[[float], object] = time.sleep) -> None:
        """Call `is_over` to find whether to leave the rest to a later time, and `wait` to pause for some seconds."""
        self.is_over = is_over
        self._wait = wait
        self.num_rows = 1000

    @contextmanager
    def piece(self) -> Generator[None]:
        """Measure the transaction in the block, then pause as long as it took: half of the time belongs to others.

        A writer of SQLite that begins at once again would leave the others without a turn.
        """
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        ideal = int(self.num_rows * PIECE_SECONDS / max(seconds, 1e-3))
        self.num_rows = min(max(MIN_ROWS, ideal, self.num_rows // 2), MAX_ROWS, self.num_rows * 2)
        self._wait(min(seconds, 1.0))
