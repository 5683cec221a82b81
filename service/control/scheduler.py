"""Start of waiting jobs in strict order: no job overtakes another, so that none starves."""

import structlog

from service.capacity.free import compute_free_capacity
from service.control.attempt_finalizer import AttemptFinalizer
from service.control.round_errors import Faults
from service.control.starter import Starter
from service.control.time_limits import has_to_wait, is_late
from service.database import Database
from service.jobs.demand import find_first_lack, list_misfits
from service.jobs.models import Job
from service.jobs.reasons import Reason
from service.jobs.repository import Change, JobRepository, StateChangedError
from service.jobs.states import JobState
from service.launchers.protocol import Capacity, Launcher, LaunchError

log = structlog.get_logger(__name__)

BEHIND_OTHERS = (Reason.BEHIND_RESERVATION, "jobs ahead of it start first")


class Scheduler:
    def __init__(
        self, database: Database, launcher: Launcher, starter: Starter, finalizer: AttemptFinalizer, faults: Faults
    ) -> None:
        self._database = database
        self._launcher = launcher
        self._starter = starter
        self._finalizer = finalizer
        self._faults = faults

    def run_once(self) -> None:
        """Start every job whose turn it is and for which resources are free; record why the others wait."""
        with self._database.read() as session:
            queue = JobRepository(session).list_queue()
        is_blocked = False
        for job in queue:
            try:
                is_blocked = self._consider(job, is_blocked) or is_blocked
            except Exception as error:
                # Catches everything: the jobs after this one must still be considered.
                self._faults.record("schedule_failed", error, job=job.id)

    def _consider(self, job: Job, is_blocked: bool) -> bool:
        """Start `job`, fail it, or record why it waits. Return whether it blocks the jobs after it."""
        if self._fail_if_hopeless(job):
            return False
        if has_to_wait(job):
            # During its back-off a job needs no resources yet, so that it does not block the jobs after it.
            self._explain(job, Reason.RESTARTING, job.message)
            return False
        lack = BEHIND_OTHERS if is_blocked else self._find_lack(job)
        if lack is None:
            self._start(job)
            return False
        self._explain(job, *lack)
        return True

    def _fail_if_hopeless(self, job: Job) -> bool:
        """Fail a job that no longer fits the machine or whose deadline has passed. Return whether it did."""
        errors = list_misfits(_get_demand(job), self._launcher.capacity())
        if errors:
            self._fail(job, Reason.CANNOT_FIT, "; ".join(str(error) for error in errors))
            return True
        if is_late(job):
            message = f"deadline_seconds = {job.spec['deadline_seconds']} passed while the job waited"
            self._fail(job, Reason.DEADLINE_EXCEEDED, message)
            return True
        return False

    def _fail(self, job: Job, reason: Reason, message: str) -> None:
        try:
            with self._database.write() as session:
                jobs = JobRepository(session)
                change = Change(JobState.FAILED, reason, actor="scheduler", message=message)
                jobs.change_state(jobs.expect(job.id, JobState.QUEUED), change)
        except StateChangedError as error:
            log.info("job_changed_meanwhile", job=job.id, reason=str(error))

    def _explain(self, job: Job, reason: Reason, message: str) -> None:
        if (job.reason, job.message) == (reason, message):
            return
        with self._database.write() as session:
            JobRepository(session).explain_wait(job.id, reason, message)

    def _start(self, job: Job) -> None:
        try:
            attempt = self._starter.begin(job)
            self._starter.launch(job, attempt)
        except StateChangedError as error:
            log.info("job_changed_meanwhile", job=job.id, reason=str(error))
        except LaunchError as error:
            log.warning("launch_failed", job=job.id, error=str(error))
            self._finalizer.record_failed_launch(job.id, str(error))

    def _find_lack(self, job: Job) -> tuple[Reason, str] | None:
        """Return the first resource that `job` lacks, as a reason and a message; None where it can start."""
        free = compute_free_capacity(self._database, self._launcher.capacity())
        return find_first_lack(_get_demand(job), free)


def _get_demand(job: Job) -> Capacity:
    return Capacity(job.num_cores, job.memory_bytes, job.num_gpus)
