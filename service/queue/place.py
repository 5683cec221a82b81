"""Place of a waiting job in the queue."""

import statistics
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.jobs.models import Job
from service.launchers.protocol import Capacity
from service.queue.forecast import ExpectedEnd, WaitingJob, forecast_start_seconds
from service.queue.repository import QueueRepository
from service.queue.state import QueueState, get_demand
from service.times import now

MAX_AHEAD = 100
"""Number of jobs in front of a job above which its start is not forecast."""
NUM_EARLIER_RUNS = 9
"""Number of earlier runs of the same name whose median is taken as the length of a run."""


@dataclass(frozen=True)
class Place:
    """Place of a job that waits for resources alone."""

    num_ahead: int
    """Number of waiting jobs in front of it."""
    expected_start_at: datetime | None
    """Time at which it is expected to start; None where the running jobs and those in front of it do not tell."""


def find_place(session: Session, job: Job, total: Capacity) -> Place:
    """Find the place of a waiting job. total: all that jobs may occupy."""
    queue, time = QueueRepository(session), now()
    num_ahead = queue.count_ahead(job, time)
    if num_ahead > MAX_AHEAD:
        return Place(num_ahead, None)
    ahead = [
        WaitingJob(get_demand(other), _estimate_run_seconds(queue, other))
        for other in queue.list_ahead(job, time, MAX_AHEAD)
    ]
    ends: list[ExpectedEnd] = []
    for running in queue.list_holding():
        eta_seconds = running.progress.get("eta_seconds")
        if eta_seconds is not None:
            ends.append(ExpectedEnd(max(0.0, eta_seconds), get_demand(running)))
    free = QueueState.read(session, total, time).free
    seconds = forecast_start_seconds(free, ends, ahead, get_demand(job))
    return Place(num_ahead, None if seconds is None else time + timedelta(seconds=seconds))


def _estimate_run_seconds(queue: QueueRepository, job: Job) -> float | None:
    earlier = queue.list_run_seconds(job.owner, job.name, NUM_EARLIER_RUNS)
    return statistics.median(earlier) if earlier else None
