"""Start of waiting jobs: in order of priority and age, where small jobs may pass a large one for some time."""

import time

import structlog

from service.control.attempt_finalizer import AttemptFinalizer
from service.control.job_faults import JobFaults
from service.control.starter import Starter
from service.launchers.protocol import LauncherCapacity, LaunchError
from service.launchers.registry import Launchers
from service.leader.leadership import Leadership
from service.queue.repository import QueueRepository, list_late
from service.queue.state import QueueState
from service.reasons import SCHEDULER, Reason
from service.store.demand import get_full_demand, list_misfits
from service.store.job_repository import Change, JobRepository, StateChangedError
from service.store.models import Job
from service.store.quotas import list_full
from service.store.states import JobState
from service.times import now

log = structlog.get_logger(__name__)

START_SECONDS = 2.0
"""Seconds after which a round starts no more jobs: those that run must be looked after too."""
MAX_LATE = 100
"""Number of jobs that one round fails at most because of their deadline."""


class Scheduler:
    def __init__(
        self,
        leadership: Leadership,
        launchers: Launchers,
        starter: Starter,
        finalizer: AttemptFinalizer,
        job_faults: JobFaults,
    ) -> None:
        self._leadership = leadership
        self._launchers = launchers
        self._starter = starter
        self._finalizer = finalizer
        self._job_faults = job_faults
        self._checked_capacities: dict[str, LauncherCapacity | None] = {}
        """Capacity by launcher that every waiting job fits; missing before the first check."""
        self._tried: dict[str, set[str]] = {}
        """Ids of the jobs by launcher that were started or given up since all were done the last time."""

    def run_once(self) -> bool:
        """Start every job whose turn it is, if resources are free for it, launcher by launcher.

        Return whether that is done; otherwise time is up, and the next round goes on. The cost grows with the jobs that
        start, not with the waiting ones.
        """
        self._fail_late()
        end = time.monotonic() + START_SECONDS
        is_done = True
        for name, launcher in self._launchers.items():
            capacity = launcher.capacity()
            self._fail_too_large(name, capacity)
            is_done = self._start_waiting(name, capacity, end) and is_done
        return is_done

    def _start_waiting(self, launcher: str, capacity: LauncherCapacity | None, end: float) -> bool:
        """Start jobs of one launcher until none is left, or until `end` on the monotonic clock, but at least one."""
        tried = self._tried.setdefault(launcher, set())
        while (job := self._choose_next(launcher, capacity, frozenset(tried))) is not None:
            tried.add(job.id)
            # A start may wait for a cluster for seconds, and there may be many.
            self._leadership.renew_if_due()
            self._job_faults.guard("control_failed", job.id, lambda job=job: self._start(job))
            if time.monotonic() > end:
                return False
        tried.clear()
        return True

    def _choose_next(self, launcher: str, capacity: LauncherCapacity | None, tried: frozenset[str]) -> Job | None:
        """Choose the next job of a launcher to start; None if no waiting job may start now.

        The first job of the queue starts as soon as there is room for it. Until then others may pass it, but once its
        room is reserved only those that leave room for it. One that would not fit even empty machines has no
        turn until there are others. tried: ids of jobs that this round has started or given up.
        """
        with self._leadership.write() as session:
            queue, at = QueueRepository(session, launcher), now()
            state = QueueState.read(session, launcher, capacity, at, tried)
            if state.head is None or state.free.has_room_for(get_full_demand(state.head).least):
                return state.head
            queue.set_at_head(state.head.id, at)
            if state.room_of_others.num_cores == 0:
                return None
            full = list_full(state.quotas, state.usages)
            return queue.find_first(at, capacity=capacity, room=state.room_of_others, full=full, tried=tried)

    def _fail_too_large(self, launcher: str, capacity: LauncherCapacity | None) -> None:
        """Fail waiting jobs that do not fit the machines any more, once after each change of their capacity."""
        if capacity is None or not capacity.is_fixed or self._checked_capacities.get(launcher) == capacity:
            return
        with self._leadership.write() as session:
            for job in QueueRepository(session, launcher).list_too_large(capacity):
                message = "; ".join(str(error) for error in list_misfits(get_full_demand(job), capacity))
                change = Change(JobState.FAILED, Reason.CANNOT_FIT, actor=SCHEDULER, message=message)
                JobRepository(session).change_state(job, change)
        self._checked_capacities[launcher] = capacity

    def _fail_late(self) -> None:
        """Fail waiting jobs whose deadline has passed."""
        with self._leadership.write() as session:
            for job in list_late(session, now(), MAX_LATE):
                message = f"deadline_seconds = {job.deadline_seconds} passed while the job waited"
                change = Change(JobState.FAILED, Reason.DEADLINE_EXCEEDED, actor=SCHEDULER, message=message)
                JobRepository(session).change_state(job, change)

    def _start(self, job: Job) -> None:
        try:
            attempt = self._starter.begin(job)
            self._starter.launch(job, attempt)
        except StateChangedError as error:
            log.info("job_changed_meanwhile", job=job.id, reason=str(error))
        except LaunchError as error:
            log.warning("launch_failed", job=job.id, error=str(error))
            self._finalizer.record_failed_launch(job.id, error)
