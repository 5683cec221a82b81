"""Worker threads with results in order, so that the first error does not depend on the number of threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Worker threads for functions that release the GIL most of the time (polars, Arrow, numpy, hashlib)."""

    def __init__(self, executor: ThreadPoolExecutor, num_threads: int) -> None:
        self._executor = executor
        self._max_in_flight = num_threads + 1

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield the results in the order of `items`; at most `num_threads + 1` items are in work at a time.

        If `items` or `function` raises an error, the results of the items before it are yielded first, then the
        error is raised. Once the generator is closed, none of its work is running.
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
            # Do not wait for cancelled futures: only a worker thread ends that wait, and the threads may have ended.
            wait([future for future in in_flight if not future.cancel()])


@contextmanager
def start_workers(num_threads: int) -> Iterator[Workers]:
    """Start worker threads for a `with` block; at its end all of them have ended."""
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix="prepare")
    try:
        yield Workers(executor, num_threads)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
