"""Start of waiting jobs: in order of priority and age, where small jobs may pass a large one for some time."""

import structlog

from service.actors import SCHEDULER
from service.control.attempt_finalizer import AttemptFinalizer
from service.control.round_errors import Faults
from service.control.starter import Starter
from service.jobs.demand import list_misfits
from service.jobs.models import Job
from service.jobs.repository import Change, JobRepository, StateChangedError
from service.jobs.states import JobState
from service.launchers.protocol import Capacity, Launcher, LaunchError
from service.leader.leadership import Leadership, LeadershipLostError
from service.queue.repository import QueueRepository
from service.queue.state import QueueState, get_demand
from service.quotas.rules import list_full
from service.reasons import Reason
from service.times import now

log = structlog.get_logger(__name__)

MAX_LATE = 100
"""Number of jobs that one round fails at most because of their deadline."""


class Scheduler:
    def __init__(
        self, leadership: Leadership, launcher: Launcher, starter: Starter, finalizer: AttemptFinalizer, faults: Faults
    ) -> None:
        self._leadership = leadership
        self._launcher = launcher
        self._starter = starter
        self._finalizer = finalizer
        self._faults = faults
        self._checked_capacity: Capacity | None = None
        """Capacity that every waiting job fits; None before the first check."""

    def run_once(self) -> None:
        """Start every job whose turn it is and for which resources are free.

        The cost grows with the jobs that start, not with those that wait.
        """
        self._fail_too_large()
        self._fail_late()
        tried: set[str] = set()
        while (job := self._choose_next(frozenset(tried))) is not None:
            tried.add(job.id)
            try:
                self._start(job)
            except LeadershipLostError:
                raise
            except Exception as error:
                # Catches everything: the jobs after this one must still be considered.
                self._faults.record("schedule_failed", error, job=job.id)

    def _choose_next(self, tried: frozenset[str]) -> Job | None:
        """Choose the next job to start; None where no waiting job may start now.

        The first job of the queue starts as soon as there is room for it. Until then others may pass it, but once its
        room is reserved only those that leave room for it. tried: ids of jobs that this round has started or given up.
        """
        with self._leadership.write() as session:
            queue, time = QueueRepository(session), now()
            state = QueueState.read(session, self._launcher.capacity(), time, tried)
            if state.head is None or state.free.has_room_for(get_demand(state.head)):
                return state.head
            queue.set_at_head(state.head.id, time)
            if state.room_of_others.num_cores == 0:
                return None
            full = list_full(state.quotas, state.usages)
            return queue.find_first(time, room=state.room_of_others, full=full, tried=tried)

    def _fail_too_large(self) -> None:
        """Fail waiting jobs that do not fit the machine any more, once after each change of its capacity."""
        total = self._launcher.capacity()
        if self._checked_capacity == total:
            return
        with self._leadership.write() as session:
            for job in QueueRepository(session).list_too_large(total):
                message = "; ".join(str(error) for error in list_misfits(get_demand(job), total))
                change = Change(JobState.FAILED, Reason.CANNOT_FIT, actor=SCHEDULER, message=message)
                JobRepository(session).change_state(job, change)
        self._checked_capacity = total

    def _fail_late(self) -> None:
        """Fail waiting jobs whose deadline has passed."""
        with self._leadership.write() as session:
            for job in QueueRepository(session).list_late(now(), MAX_LATE):
                message = f"deadline_seconds = {job.spec['deadline_seconds']} passed while the job waited"
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
            self._finalizer.record_failed_launch(job.id, str(error))
