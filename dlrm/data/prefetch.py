"""Threads for rows: one to compute results ahead, and a few to read pieces at the same time."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def prefetch(
    make: Callable[[Item], Result], items: Iterable[Item], num_ahead: int = 2
) -> Generator[Result, None, None]:
    """Yield `make(item)` for every item, in order, computed by one thread at most `num_ahead` results ahead.

    An error of `make` is raised when its result is due. An error of `items` is raised when its item is taken, up to
    `num_ahead` results earlier. Closing the generator drops the results that were computed ahead and ends the thread.
    """
    pending: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    try:
        for item in items:
            pending.append(executor.submit(make, item))
            if len(pending) > num_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)


class PieceThreads:
    """A few threads for work that numpy does without Python's lock; if it is only one, it is the caller's."""

    def __init__(self, num_threads: int) -> None:
        """Start nothing yet: threads start with the first work for them, and end with this object."""
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="rows") if num_threads > 1 else None

    def map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
        """Return `function(piece)` for every piece, in order. Raises the error of the first piece that has one."""
        if self._executor is None or len(pieces) == 1:
            return [function(piece) for piece in pieces]
        return list(self._executor.map(function, pieces))
