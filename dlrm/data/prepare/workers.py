"""Work on several threads, its results in order: what comes first does not depend on the threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Threads; what they run lets go of the interpreter most of the time (polars, Arrow, numpy, hashlib)."""

    def __init__(self, executor: ThreadPoolExecutor, num_threads: int) -> None:
        self._executor = executor
        self._max_in_flight = num_threads + 1

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """The results in the order of `items`, of which a few at a time are taken.

        Where an item, or the making of one, raises an error, the results before it come first, then the error. Once the
        generator is closed, nothing of it runs on.
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
                if len(in_flight) >= self._max_in_flight:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        finally:
            # Not for those that are cancelled: where the threads have ended, nobody would ever wake a wait for them.
            wait([future for future in in_flight if not future.cancel()])


@contextmanager
def started_workers(num_threads: int) -> Iterator[Workers]:
    """Workers to use inside the `with`; at its end nothing runs on."""
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix="prepare")
    try:
        yield Workers(executor, num_threads)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
