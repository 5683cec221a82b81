"""Place of a waiting job in the queue."""

import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.capacity.known import KnownCapacities
from service.launchers.protocol import UNLIMITED, LauncherCapacity
from service.queue.forecast import RunningJob, WaitingJob, forecast_start_seconds
from service.queue.holders import Holding, list_holders
from service.queue.repository import QueueRepository
from service.queue.state import QueueState
from service.reasons import Reason
from service.schemas import QueuePlace
from service.store.demand import find_misfit, get_full_demand
from service.store.job_rows import JobRow
from service.store.models import Job
from service.store.quotas import QuotaRepository
from service.store.states import JobState
from service.times import now

Wait = tuple[Reason, str]
"""Reason for which a job waits, and a sentence about it."""


MAX_AHEAD = 100
"""Number of jobs in front of a job above which its start is not forecast."""
NUM_EARLIER_RUNS = 9
"""Number of earlier runs of the same name whose median is taken as the length of a run."""


def find_place(
    session: Session,
    job: Job,
    wait: Wait | None,
    read_capacities: Callable[[], KnownCapacities],
    visible_owner: str | None,
) -> QueuePlace | None:
    """Find the place of a job in the queue; None while it does not wait there for resources.

    wait: what it waits for, from `explain_waits`. read_capacities: reads all that the jobs of each launcher may occupy.
    visible_owner: only owner whose jobs the reader may know of; None if it may know of all.
    """
    time = now()
    if job.state != JobState.QUEUED or job.is_held or (job.restarts_at is not None and job.restarts_at > time):
        return None
    capacity = read_capacities().get(job.launcher)
    queue = QueueRepository(session, job.launcher)
    num_ahead, holding = queue.count_ahead(job, time), queue.list_holding()
    lengths = _RunLengths(queue, time)
    is_unknown = num_ahead > MAX_AHEAD or find_misfit(get_full_demand(job), capacity) is not None
    seconds = None if is_unknown else _forecast_start(session, job, capacity, holding, lengths)
    return QueuePlace(
        position=num_ahead + 1,
        waits_for=job.message if wait is None else wait[1],
        expected_start_at=None if seconds is None else _round_up_to_minute(time + timedelta(seconds=seconds)),
        holders=list_holders(
            [Holding(other, lengths.find_end(other)) for other in holding if _is_waited_for(other, job, wait)],
            visible_owner,
        ),
    )


def _is_waited_for(holder: Job, job: Job, wait: Wait | None) -> bool:
    """Whether the end of a job that holds resources may let another one start."""
    if wait is None or wait[0] is Reason.UNSCHEDULABLE:
        return False
    return wait[0] is not Reason.QUOTA_EXCEEDED or holder.owner == job.owner


class _RunLengths:
    """Estimates of how long jobs run, from what they report and from earlier ones of the same name."""

    def __init__(self, queue: QueueRepository, time: datetime) -> None:
        self._queue = queue
        self.time = time
        self._usual: dict[tuple[str, str], float | None] = {}

    def estimate_run(self, job: Job) -> float | None:
        """Estimate the seconds of a whole run by earlier ones of the same owner and name; None if there are none."""
        key = (job.owner, job.name)
        if key not in self._usual:
            earlier = self._queue.list_run_seconds(*key, NUM_EARLIER_RUNS)
            self._usual[key] = statistics.median(earlier) if earlier else None
        return self._usual[key]

    def estimate_left(self, job: Job) -> float | None:
        """Estimate the seconds until a running job ends; None if nothing is known."""
        # Its own report tells best; before its first steps, and after the last, earlier runs tell.
        seconds = job.progress.get("eta_seconds")
        if seconds is None and job.started_at is not None:
            usual = self.estimate_run(job)
            seconds = None if usual is None else usual - (self.time - job.started_at).total_seconds()
        return None if seconds is None else max(0.0, seconds)

    def find_end(self, job: Job) -> datetime | None:
        """Find the minute in which a running job is expected to end; None if nothing is known."""
        seconds = self.estimate_left(job)
        return None if seconds is None else _round_up_to_minute(self.time + timedelta(seconds=seconds))


def _forecast_start(
    session: Session, job: Job, capacity: LauncherCapacity | None, holding: Sequence[Job], lengths: _RunLengths
) -> float | None:
    """Estimate the seconds until a waiting job starts; None if the jobs running and in front do not determine it."""

    def describe_waiting(other: Job) -> WaitingJob:
        demand = get_full_demand(other)
        return WaitingJob(other.owner, demand.total, demand.least, lengths.estimate_run(other))

    def describe_running(other: Job) -> RunningJob:
        return RunningJob(other.owner, get_full_demand(other).total, lengths.estimate_left(other))

    return forecast_start_seconds(
        capacity.total if capacity is not None else UNLIMITED,
        QuotaRepository(session).list_by_owner(),
        [describe_running(other) for other in holding],
        [
            describe_waiting(other)
            for other in QueueRepository(session, job.launcher).list_ahead(job, lengths.time, MAX_AHEAD)
            if find_misfit(get_full_demand(other), capacity) is None
        ],
        describe_waiting(job),
    )


def _round_up_to_minute(time: datetime) -> datetime:
    """Round up to a whole minute: a forecast is not better than that, and a job whose answer stays has the same tag."""
    return (time + timedelta(minutes=1, microseconds=-1)).replace(second=0, microsecond=0)


def explain_waits(
    session: Session, jobs: Sequence[Job | JobRow], read_capacities: Callable[[], KnownCapacities]
) -> dict[str, Wait]:
    """Return what the queued ones of `jobs` wait for, as a reason and a sentence by job id.

    Held jobs, and jobs about to start, have their reason in their row. read_capacities: reads all that the jobs of each
    launcher may occupy.
    """
    time = now()
    queued = [job for job in jobs if job.state == JobState.QUEUED and not job.is_held]
    if not queued:
        return {}
    capacities = read_capacities()
    launchers = {job.launcher for job in queued}
    states = {name: QueueState.read(session, name, capacities.get(name), time) for name in launchers}
    waits = {job.id: _explain(job, states[job.launcher]) for job in queued}
    return {job_id: wait for job_id, wait in waits.items() if wait is not None}


def _explain(job: Job | JobRow, state: QueueState) -> Wait | None:
    if job.restarts_at is not None and job.restarts_at > state.time:
        return Reason.RESTARTING, job.message
    return state.find_wait(job.owner, get_full_demand(job), job.id)
