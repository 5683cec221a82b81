"""Memory that the bodies of all requests may take together."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from service.http.problems import ProblemError

RETRY_SECONDS = 2


class BodyBudget:
    """Bytes for the bodies of requests in progress, for one event loop.

    One sender may take a quarter of them, so that nobody who sends slowly keeps others out.
    """

    def __init__(self, num_bytes: int, wait_seconds: float) -> None:
        """Let a request wait up to `wait_seconds` until there are enough bytes."""
        self._num_bytes = num_bytes
        self._wait_seconds = wait_seconds
        self._taken: Counter[Hashable] = Counter()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, num_bytes: int, sender: Hashable) -> AsyncGenerator[None]:
        """Take bytes for a body of `sender` until the block ends; waits where they are taken.

        Raises ProblemError (503) where the wait is too long.
        """
        try:
            async with asyncio.timeout(self._wait_seconds), self._changed:
                await self._changed.wait_for(lambda: self._has(num_bytes, sender))
                self._taken[sender] += num_bytes
        except TimeoutError:
            raise _too_busy() from None
        try:
            yield
        finally:
            self._taken[sender] -= num_bytes
            if not self._taken[sender]:
                del self._taken[sender]
            async with self._changed:
                self._changed.notify_all()

    def _has(self, num_bytes: int, sender: Hashable) -> bool:
        own = self._taken[sender]
        share = max(self._num_bytes // 4, num_bytes)
        return own + num_bytes <= share and self._taken.total() + num_bytes <= self._num_bytes


def _too_busy() -> ProblemError:
    detail = "the bodies of other requests take all memory that is meant for them; try again soon"
    return ProblemError(
        "too-busy", 503, "Too many large requests at once", detail, headers={"Retry-After": str(RETRY_SECONDS)}
    )
