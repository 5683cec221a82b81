"""Forecast of the time at which a waiting job starts: a pure function of what runs and what waits in front of it."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from service.launchers.protocol import Capacity


@dataclass(frozen=True)
class ExpectedEnd:
    """Resources that a running job gives back."""

    seconds: float
    """Seconds until then."""
    demand: Capacity


@dataclass(frozen=True)
class WaitingJob:
    """A job of the queue, in its order."""

    demand: Capacity
    run_seconds: float | None
    """Seconds that it is expected to run; None where nothing is known, so that it is taken to run for ever."""


def forecast_start_seconds(
    free: Capacity, ends: Sequence[ExpectedEnd], ahead: Sequence[WaitingJob], demand: Capacity
) -> float | None:
    """Return the seconds until a job of `demand` starts; None where what is known does not tell.

    free: what is free now. ends: of the running jobs, as far as they are known. ahead: jobs in front of it, in their
    order. As in the scheduler, a job that fits passes those that do not; reservations are left out.
    """
    waiting: list[WaitingJob | None] = [*ahead, None]
    releases = [(end.seconds, number, end.demand) for number, end in enumerate(ends)]
    heapq.heapify(releases)
    num_releases, time = len(releases), 0.0
    while True:
        for job in list(waiting):
            needed = demand if job is None else job.demand
            if not free.has_room_for(needed):
                continue
            if job is None:
                return time
            waiting.remove(job)
            free = free.minus(needed)
            if job.run_seconds is not None:
                num_releases += 1
                heapq.heappush(releases, (time + job.run_seconds, num_releases, needed))
        if not releases:
            return None
        time, _, given_back = heapq.heappop(releases)
        free = free.plus(given_back)
