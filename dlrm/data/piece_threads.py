"""Threads that read the pieces of a batch at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class PieceThreads:
    """A few threads for work that numpy does without Python's lock; one thread is that of the caller."""

    def __init__(self, num_threads: int) -> None:
        """Start nothing yet: threads start with the first work for them, and end with this object."""
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="rows") if num_threads > 1 else None

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """Return `function(piece)` for every piece, in order. Raises the error of the first piece that has one."""
        if self._executor is None or len(pieces) == 1:
            return [function(piece) for piece in pieces]
        return list(self._executor.map(function, pieces))
