"""Threads of the service, separate for each kind of work, so that none waits for threads that another one holds."""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Threads:
    """Threads for one kind of work. Each event loop has its own."""

    def __init__(self, work: str, number: int) -> None:
        self._number = number
        self._limiter: RunVar[CapacityLimiter] = RunVar(work)

    async def run(
        self, function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """Run `function` in a thread of this kind, once one is free; first come, first served."""
        return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._get_limiter())

    def _get_limiter(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self._number)
            self._limiter.set(limiter)
            return limiter


CONTROL = Threads("control", 8)
"""Threads of all endpoints that name no others."""
LISTS = Threads("lists", 2)
"""Threads that read lists of jobs and events: 200 of them at once would hold all threads of control for seconds."""
CURVES = Threads("curves", 1)
"""Thread that reads curves and logs: a second one would take the second of two cores from all other requests."""
INGEST = Threads("ingest", 1)
"""Thread that stores the reports of ranks, which the interpreter runs one at a time anyway."""
PLANS = Threads("plans", 8)
"""Threads that wait for plans: more than may wait, so that further requests are refused at once."""
MONITORING = Threads("monitoring", 1)
"""Thread of the endpoints for monitoring, which anybody may call."""
