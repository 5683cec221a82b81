"""Threads for rows: results in order, computed ahead, and a few threads to read pieces at the same time."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Workers:
    """Worker threads for functions that release the GIL most of the time (polars, Arrow, numpy, hashlib)."""

    def __init__(self, executor: ThreadPoolExecutor, num_ahead: int) -> None:
        self._executor, self._num_ahead = executor, num_ahead

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield the results in the order of `items`, computed at most `num_ahead` results ahead.

        If `items` or `function` raises an error, the results of the items before it are yielded first, then the
        error is raised: the first error does not depend on the number of threads. Once the generator is closed, none of
        its work is running.
        """
        in_flight: deque[Future[Result]] = deque()
        try:
            remaining = iter(items)
            while True:
                try:
                    item = next(remaining)
                except StopIteration:
                    break
                except Exception:
                    while in_flight:
                        yield in_flight.popleft().result()
                    raise
                in_flight.append(self._executor.submit(function, item))
                if len(in_flight) > self._num_ahead:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            # Do not wait for cancelled futures: only a worker thread ends that wait, and the threads may have ended.
            wait([future for future in in_flight if not future.cancel()])


@contextmanager
def start_workers(num_threads: int, num_ahead: int | None = None) -> Iterator[Workers]:
    """Start worker threads for a `with` block; at its end all of them have ended. num_ahead: None for `num_threads`."""
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix="rows")
    try:
        yield Workers(executor, num_threads if num_ahead is None else num_ahead)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def prefetch(
    make: Callable[[Item], Result], items: Iterable[Item], num_ahead: int = 2
) -> Generator[Result, None, None]:
    """Yield `make(item)` for every item as `Workers.map` does, computed by one thread.

    Closing the generator drops the results that were computed ahead and ends the thread.
    """
    with start_workers(1, num_ahead) as workers:
        yield from workers.map(make, items)


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
