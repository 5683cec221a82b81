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
    num_ahead = queue.count_ahead(job, time)
    forecaster = Forecaster(session, job.launcher, capacity, time)
    expected = None
    if num_ahead <= MAX_AHEAD:
        expected = forecaster.expect_start(job, queue.list_ahead(job, time, MAX_AHEAD))
    return QueuePlace(
        position=num_ahead + 1,
        waits_for=job.message if wait is None else wait[1],
        expected_start_at=expected,
        holders=list_holders(
            [each for each in forecaster.list_holding() if _is_waited_for(each.job, job, wait)], visible_owner
        ),
    )


def estimate_run_seconds(queue: QueueRepository, owner: str, name: str) -> float | None:
    """Estimate the length of a run as the median of earlier ones of its name; None without any."""
    earlier = queue.list_run_seconds(owner, name, NUM_EARLIER_RUNS)
    return statistics.median(earlier) if earlier else None


def _is_waited_for(holder: Job, job: Job, wait: Wait | None) -> bool:
    """Whether the end of a job that holds resources may let another one start."""
    if wait is None or wait[0] is Reason.UNSCHEDULABLE:
        return False
    return wait[0] is not Reason.QUOTA_EXCEEDED or holder.owner == job.owner


class Forecaster:
    """Forecast of starts by the jobs that run on one launcher now, and their owners' quotas."""

    def __init__(self, session: Session, launcher: str, capacity: LauncherCapacity | None, time: datetime) -> None:
        """Read what runs. capacity: all that jobs may occupy; None if that is not known."""
        self._queue = QueueRepository(session, launcher)
        self._capacity = capacity
        self._time = time
        self._quotas = QuotaRepository(session).list_by_owner()
        self._run_seconds: dict[tuple[str, str], float | None] = {}
        self._waiting: dict[str, WaitingJob | None] = {}
        """Waiting jobs by id; None if no machine has room for one."""
        self._holding = self._queue.list_holding()
        self._running = [self._describe_running(job) for job in self._holding]
        self._is_end_unknown = any(job.seconds_left is None for job in self._running)

    def expect_start(self, job: Job, ahead: Sequence[Job]) -> datetime | None:
        """Estimate when a waiting job starts, to the minute; None if what runs and what is ahead does not determine it.

        ahead: the jobs in front of it, in their order.
        """
        waiting = self._describe_waiting(job)
        if waiting is None:
            return None
        total = self._capacity.total if self._capacity is not None else UNLIMITED
        in_front = [other for other in map(self._describe_waiting, ahead) if other is not None]
        seconds = forecast_start_seconds(total, self._quotas, self._running, in_front, waiting)
        return self._find_minute(seconds)

    def list_holding(self) -> list[Holding]:
        """List the jobs that hold resources, each with its expected end."""
        return [
            Holding(job, self._find_minute(run.seconds_left))
            for job, run in zip(self._holding, self._running, strict=True)
        ]

    def _find_minute(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else _round_up_to_minute(self._time + timedelta(seconds=seconds))

    def _estimate_run_seconds(self, owner: str, name: str) -> float | None:
        if (owner, name) not in self._run_seconds:
            self._run_seconds[owner, name] = estimate_run_seconds(self._queue, owner, name)
        return self._run_seconds[owner, name]

    def _describe_waiting(self, job: Job) -> WaitingJob | None:
        if job.id not in self._waiting:
            demand = get_full_demand(job)
            is_misfit = find_misfit(demand, self._capacity) is not None
            # Behind a run of unknown end no other end counts.
            seconds = None if is_misfit or self._is_end_unknown else self._estimate_run_seconds(job.owner, job.name)
            waiting = WaitingJob(job.owner, demand.total, demand.least, seconds)
            self._waiting[job.id] = None if is_misfit else waiting
        return self._waiting[job.id]

    def _describe_running(self, job: Job) -> RunningJob:
        # Its own report tells best; before its first steps, and after the last, earlier runs tell.
        seconds = job.progress.get("eta_seconds")
        if seconds is None and job.started_at is not None:
            usual = self._estimate_run_seconds(job.owner, job.name)
            seconds = None if usual is None else usual - (self._time - job.started_at).total_seconds()
        return RunningJob(job.owner, get_full_demand(job).total, None if seconds is None else max(0.0, seconds))


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
