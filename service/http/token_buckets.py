"""Token buckets, by which requests are limited to a rate and a burst."""

import time
from collections import OrderedDict
from collections.abc import Callable

MAX_NAMES = 10_000


class TokenBuckets:
    """One bucket of tokens for each name. A bucket fills at a rate up to its burst; each request takes one token.

    Of too many buckets those that were not used for longest are dropped, so that names take bounded memory.
    """

    def __init__(
        self,
        per_second: float,
        burst: float,
        max_names: int = MAX_NAMES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fill every bucket with `per_second` tokens a second, up to `burst` but at least one."""
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._max_names = max_names
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens of each name at a time, in the order of their last use."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str) -> float:
        """Take a token, and return 0; if there is none, return the seconds until there is one."""
        wait_seconds = self.get_wait_seconds(name)
        if wait_seconds > 0.0:
            return wait_seconds
        self._buckets[name] = (self._count(name) - 1.0, self._clock())
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._max_names:
            self._buckets.popitem(last=False)
        return 0.0

    def get_wait_seconds(self, name: str) -> float:
        """Return the seconds until there is a token; 0 where there is one."""
        if name in self._buckets:
            self._buckets.move_to_end(name)
        return max(0.0, 1.0 - self._count(name)) / self._per_second

    def _count(self, name: str) -> float:
        tokens, at = self._buckets.get(name, (self._burst, self._clock()))
        return min(self._burst, tokens + (self._clock() - at) * self._per_second)
