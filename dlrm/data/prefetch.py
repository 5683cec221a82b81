"""Prefetching: one background thread computes results before their consumer asks for them."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
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
