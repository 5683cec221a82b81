"""Threads of the service, separate for each kind of work, so that none waits for threads that another one holds."""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from service.http.problems import too_busy

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Threads:
    """Threads for one kind of work. Each event loop has its own."""

    def __init__(self, work: str, number: int, max_waiting: int | None = None) -> None:
        """Let at most `max_waiting` calls wait for a thread; any number where it is None."""
        self._work = work
        self._number = number
        self._max_waiting = max_waiting
        self._limiter: RunVar[CapacityLimiter] = RunVar(work)

    async def run(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run `function` in a thread of this kind, once one is free; first come, first served.

        Raises ProblemError (503) where too many calls wait already.
        """
        limiter = self._get_limiter()
        if self._max_waiting is not None and limiter.statistics().tasks_waiting >= self._max_waiting:
            raise too_busy(f"{self._max_waiting} requests wait for {self._work} already; try again soon")
        return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=limiter)

    def _get_limiter(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self._number)
            self._limiter.set(limiter)
            return limiter


AUTHENTICATION = Threads("authentication", 2, max_waiting=200)
"""Threads that look keys, sessions and tokens up."""
SUSPICIONS = Threads("authentication of suspects", 1, max_waiting=20)
"""Thread that does so for addresses from which many wrong ones came."""
CONTROL = Threads("control", 8)
"""Threads of all endpoints that name no others."""
CURVES = Threads("curves", 1)
"""Thread that reads curves and logs: a second one would take the second of two cores from all other requests."""
INGEST = Threads("ingest", 1)
"""Thread that stores the reports of ranks, which the interpreter runs one at a time anyway."""
PLANS = Threads("plans", 8)
"""Threads that wait for plans: more than may wait, so that further requests are refused at once."""
MONITORING = Threads("monitoring", 1)
"""Thread of the endpoints for monitoring, which anybody may call."""
