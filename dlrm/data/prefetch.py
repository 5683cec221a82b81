"""Work done ahead of its consumer, in one background thread."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(
    make: Callable[[Item], Result], items: Iterable[Item], num_ahead: int = 2
) -> Generator[Result, None, None]:
    """`make(item)` for every item, in order, at most `num_ahead` of them made before they are asked for.

    An error of `make` is raised where its result is asked for. Closing the generator drops what was made ahead and ends
    the thread.
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
