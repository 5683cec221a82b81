"""Forecast of the time at which a waiting job starts: a pure function of what runs and what waits in front of it."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.launchers.protocol import Capacity
from service.store.models import Quota
from service.store.quotas import NOTHING, Usage, find_quota, find_quota_lack


@dataclass(frozen=True)
class RunningJob:
    """A job that holds resources, and when it gives them back."""

    owner: str
    demand: Capacity
    seconds_left: float | None
    """Seconds until it is expected to end; None if nothing is known."""


@dataclass(frozen=True)
class WaitingJob:
    """A job of the queue, in its order."""

    owner: str
    demand: Capacity
    """Resources that it occupies once it runs."""
    least: Capacity
    """Room with which it begins: less where it leaves a range of machines."""
    run_seconds: float | None
    """Seconds that it is expected to run; None if nothing is known, so that it is taken to run for ever."""


@dataclass
class _Room:
    """Resources free at a time, and the resources that each owner's jobs hold."""

    free: Capacity
    quotas: Mapping[str, Quota]
    usages: dict[str, Usage]

    def may_start(self, job: WaitingJob) -> bool:
        if not self.free.has_room_for(job.least):
            return False
        quota, usage = find_quota(self.quotas, job.owner), self.usages.get(job.owner, NOTHING)
        return find_quota_lack(job.owner, job.demand, quota, usage) is None

    def take(self, owner: str, demand: Capacity) -> None:
        usage = self.usages.get(owner, NOTHING)
        self.free = self.free.minus(demand)
        self.usages[owner] = Usage(usage.capacity.plus(demand), usage.num_running + 1)

    def give_back(self, owner: str, demand: Capacity) -> None:
        usage = self.usages[owner]
        self.free = self.free.plus(demand)
        self.usages[owner] = Usage(usage.capacity.minus(demand), usage.num_running - 1)


def forecast_start_seconds(
    total: Capacity,
    quotas: Mapping[str, Quota],
    running: Sequence[RunningJob],
    ahead: Sequence[WaitingJob],
    job: WaitingJob,
) -> float | None:
    """Return the seconds until `job` starts; None if too little is known.

    total: all that jobs may occupy. quotas: by owner. ahead: jobs in front of it, in their order. As in the scheduler,
    a job that fits passes the others; reservations are left out. If a job of unknown end runs, only a start that waits
    for no end at all is foretold: that end might come first.
    """
    room = _Room(total, quotas, {})
    for other in running:
        room.take(other.owner, other.demand)
    waiting = [*ahead, job]
    # The number decides between ends at the same time: jobs cannot be compared.
    releases: list[tuple[float, int, RunningJob | WaitingJob]] = [
        (other.seconds_left, number, other) for number, other in enumerate(running) if other.seconds_left is not None
    ]
    heapq.heapify(releases)
    num_releases, time = len(running), 0.0
    while True:
        for candidate in list(waiting):
            if not room.may_start(candidate):
                continue
            if candidate is job:
                return time
            waiting.remove(candidate)
            room.take(candidate.owner, candidate.demand)
            if candidate.run_seconds is not None:
                num_releases += 1
                heapq.heappush(releases, (time + candidate.run_seconds, num_releases, candidate))
        if not releases or any(other.seconds_left is None for other in running):
            return None
        time, _, ended = heapq.heappop(releases)
        room.give_back(ended.owner, ended.demand)
