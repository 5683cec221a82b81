"""Reconciliation of the job table with the processes: each round observes what runs instead of relying on records."""

import time
from dataclasses import replace

import structlog
from sqlalchemy.exc import DBAPIError

from hostinfo.sizes import format_giga, guess_size_base
from service.control.attempt_finalizer import AttemptFinalizer
from service.control.restart_policy import is_late
from service.control.starter import Starter
from service.database import Database
from service.database.failures import are_values_refused
from service.launchers.observed_end import ObservedEnd
from service.launchers.protocol import Launch, LaunchError, LaunchName, LaunchPhase, LaunchStatus
from service.launchers.registry import Launchers
from service.leader.leadership import Leadership
from service.observability.telemetry import Telemetry
from service.reasons import RECONCILER, Reason
from service.reports.spool_tail import SpoolTail
from service.store.attempt_repository import AttemptRepository
from service.store.job_repository import Change, JobRepository, StateChangedError
from service.store.launches import make_launch
from service.store.models import Attempt, Job
from service.store.run_facts import RunFacts
from service.store.states import ENDED, AttemptState, JobState
from service.times import now

log = structlog.get_logger(__name__)

ORPHAN_SECONDS = 4.0
"""Seconds between two looks at all processes of the machine; a look takes some 10 ms."""


class Reconciler:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        launchers: Launchers,
        facts: RunFacts,
        starter: Starter,
        finalizer: AttemptFinalizer,
        telemetry: Telemetry,
        grace_period_seconds: float,
    ) -> None:
        """Wait `grace_period_seconds` between asking an attempt to stop and killing it."""
        self._database = database
        self._leadership = leadership
        self._launchers = launchers
        self._facts = facts
        self._starter = starter
        self._finalizer = finalizer
        self._grace_period_seconds = grace_period_seconds
        self._telemetry = telemetry
        self._tail = SpoolTail(database, telemetry)
        self._orphans_due_at = 0.0
        self._reported_orphans: set[LaunchName] = set()
        """Orphans of the last look whose jobs have reported the kill."""

    def list_watched(self) -> list[Job]:
        """List the jobs that need reconciliation."""
        with self._database.read() as session:
            return JobRepository(session).list_watched()

    def list_orphans(self) -> list[Launch]:
        """List the attempts with processes that have ended, or that the database does not know.

        Looks every few seconds. A service that lost its database, or was restored from a backup, finds such processes.
        """
        if time.monotonic() < self._orphans_due_at:
            return []
        self._orphans_due_at = time.monotonic() + ORPHAN_SECONDS
        # What runs is listed first: an attempt that starts meanwhile has its row before it has processes.
        launches = [launch for launcher in self._launchers.values() for launch in launcher.list()]
        with self._database.read() as session:
            active = {(attempt.job_id, attempt.number) for attempt in AttemptRepository(session).list_active()}
        orphans = [launch for launch in launches if (launch.name.job_id, launch.attempt) not in active]
        self._reported_orphans &= {launch.name for launch in orphans}
        return orphans

    def kill_orphan(self, launch: Launch) -> None:
        """Kill the processes of an attempt that has ended. Its job reports this once, however long the kill takes."""
        self._leadership.renew_if_due()
        self._leadership.check_lease()
        if self._launchers[launch.launcher].kill(launch) or launch.name in self._reported_orphans:
            return
        self._reported_orphans.add(launch.name)
        job_id, number = launch.name.job_id, launch.attempt
        self._telemetry.repairs.labels("orphan").inc()
        log.warning("orphan_killed", job=job_id, attempt=number)
        with self._leadership.write() as session:
            jobs = JobRepository(session)
            if jobs.get(job_id) is not None:
                jobs.add_repair(job_id, number, "processes were left of an attempt that has ended; they were killed")

    def reconcile(self, job: Job) -> None:
        """Update one job from the state of its processes, and stop or restart its attempt where needed."""
        if job.state == JobState.RECOVERING:
            self._wait_to_restart(job)
            return
        with self._database.read() as session:
            attempt = AttemptRepository(session).get_by_number(job.id, job.num_attempts)
        if attempt is None or attempt.finished_at is not None:
            # The job was cancelled between two attempts.
            self._change(job, Change(JobState.CANCELLED, Reason.USER_CANCELLED, actor=RECONCILER, message=job.message))
            return
        if not self._leadership.has_lease(attempt):
            return
        launch = make_launch(job, attempt)
        status = self._launchers[launch.launcher].describe(launch)
        if attempt.observed_end is not None and status.phase is not LaunchPhase.UNSEEN:
            self._handle_gone(job, attempt, launch, ObservedEnd.model_validate(attempt.observed_end).apply(status))
        elif status.phase is LaunchPhase.UNSEEN:
            self._handle_unseen(job, attempt, launch, status)
        elif status.phase is LaunchPhase.PENDING and attempt.state == AttemptState.RUNNING:
            message = f"the cluster has taken its pods back; it {status.message}"
            self._handle_gone(
                job, attempt, launch, replace(status, phase=LaunchPhase.ENDED, reason=Reason.EVICTED, message=message)
            )
        elif status.phase is LaunchPhase.PENDING:
            self._handle_pending(job, attempt, launch, status)
        elif status.phase is LaunchPhase.ALIVE:
            self._handle_alive(job, attempt, launch, status)
            self._read_spool(job, attempt, launch)
        elif status.phase is LaunchPhase.ABSENT and job.state == JobState.STARTING and attempt.stop_reason is None:
            if status.reason is Reason.LAUNCH_FAILED:
                self._explain(job, attempt, status)
            self._start_again(job, attempt)
        else:
            self._handle_gone(job, attempt, launch, status)

    def give_up(self, job_id: str, why: str) -> None:
        """End a job that the service cannot look after: kill its processes, and once they are gone record its end.

        Call it again until then. why: message of the job; left out if the database refuses it.
        """
        with self._database.read() as session:
            job = JobRepository(session).get(job_id)
            attempt = job and AttemptRepository(session).get_by_number(job.id, job.num_attempts)
        if job is None or job.state in ENDED:
            return
        if attempt is not None and attempt.finished_at is None:
            launch = make_launch(job, attempt)
            if not self._leadership.has_lease(attempt) or not self._launchers[launch.launcher].kill(launch):
                return
        try:
            self._finalizer.record_fault(job, attempt, why)
        except DBAPIError as error:
            if not are_values_refused(error):
                raise
            self._finalizer.record_fault(job, attempt, "the service could not look after this job, and has ended it")
        log.error("job_given_up", job=job_id, why=why)
        if attempt is not None:
            self._launchers[job.launcher].delete(make_launch(job, attempt))
            self._tail.forget(attempt)

    def _wait_to_restart(self, job: Job) -> None:
        number = job.num_attempts + 1
        if is_late(job):
            message = f"deadline_seconds = {job.deadline_seconds} passed before attempt {number} could start"
            self._change(job, Change(JobState.FAILED, Reason.DEADLINE_EXCEEDED, actor=RECONCILER, message=message))
        elif job.restarts_at is None or now() >= job.restarts_at:
            self._change(
                job, Change(JobState.QUEUED, Reason.RESTARTING, actor=RECONCILER, message=f"attempt {number} is due")
            )

    def _start_again(self, job: Job, attempt: Attempt) -> None:
        """Start the process of an attempt that has only a row: the service ended before it started the process."""
        if is_late(job):
            message = f"deadline_seconds = {job.deadline_seconds} passed before the attempt could be started"
            self._record_stop(attempt, Reason.DEADLINE_EXCEEDED, message)
            return
        try:
            self._starter.launch(job, attempt)
        except StateChangedError:
            return
        except LaunchError as error:
            self._finalizer.record_failed_launch(job.id, error)

    def _handle_unseen(self, job: Job, attempt: Attempt, launch: Launch, status: LaunchStatus) -> None:
        """Explain why nothing is known of an attempt, or end it where it should end: its machine may be gone for good.

        Nothing starts in its place. Processes that are left are killed as orphans once the machine is seen again.
        """
        if is_late(job) and attempt.stop_reason is None:
            message = f"deadline_seconds = {job.deadline_seconds} passed while nothing was known of the attempt"
            self._record_stop(attempt, Reason.DEADLINE_EXCEEDED, message)
        if job.state == JobState.CANCELLING or is_late(job):
            self._handle_gone(job, attempt, launch, status)
        else:
            self._explain(job, attempt, status)

    def _handle_pending(self, job: Job, attempt: Attempt, launch: Launch, status: LaunchStatus) -> None:
        """Explain why the attempt has no process yet, or take it back where it should not get one any more."""
        if job.state == JobState.CANCELLING:
            self._take_back(attempt, launch, Reason.USER_CANCELLED, job.message)
        elif is_late(job):
            message = f"deadline_seconds = {job.deadline_seconds} passed before the attempt had a machine"
            self._take_back(attempt, launch, Reason.DEADLINE_EXCEEDED, message)
        else:
            self._explain(job, attempt, status)

    def _handle_alive(self, job: Job, attempt: Attempt, launch: Launch, status: LaunchStatus) -> None:
        if job.state == JobState.STARTING:
            self._change(
                job, Change(JobState.RUNNING, Reason.PROCESS_STARTED, actor=RECONCILER, attempt=attempt.number)
            )
        if job.progress.get("samples_per_second") is not None:
            self._telemetry.record_step(attempt.id, job.launcher)
        if attempt.node != status.node:
            with self._leadership.write() as session:
                AttemptRepository(session).update(attempt.id, node=status.node)
        if job.reason == Reason.UNSEEN:
            self._explain(job, attempt, LaunchStatus(status.phase, Reason.PROCESS_STARTED, "is seen again"))
        if attempt.stop_reason is not None:
            self._kill_if_overdue(attempt, launch)
        elif job.state == JobState.CANCELLING:
            self._stop(attempt, launch, Reason.USER_CANCELLED, job.message)
        elif job.state == JobState.PAUSING:
            self._stop(attempt, launch, Reason.USER_PAUSED, job.message)
        elif status.memory_bytes > job.memory_bytes:
            base = guess_size_base(job.memory_bytes)
            used, limit = format_giga(status.memory_bytes, base), format_giga(job.memory_bytes, base)
            message = (
                f"its processes used {used}, more than its limit of {limit}: raise resources.memory; `dlrm plan` on "
                "the document shows how much the job needs"
            )
            self._record_stop(attempt, Reason.OUT_OF_MEMORY, message)
            self._launchers[launch.launcher].kill(launch)
        elif is_late(job):
            message = f"deadline_seconds = {job.deadline_seconds} passed while the job ran"
            self._stop(attempt, launch, Reason.DEADLINE_EXCEEDED, message)

    def _explain(self, job: Job, attempt: Attempt, status: LaunchStatus) -> None:
        """Record once what the launcher says about an attempt that it has not started, cannot see, or sees again."""
        reason = status.reason or Reason(job.reason)
        if job.state in (JobState.CANCELLING, JobState.PAUSING):
            # Who asked for that stands there.
            return
        if (job.reason, job.message) != (reason, status.message):
            with self._leadership.write() as session:
                jobs = JobRepository(session)
                jobs.set_reason(job, reason, status.message)
                jobs.add_repair(job.id, attempt.number, status.message, reason)
            self._telemetry.repairs.labels(reason).inc()

    def _stop(self, attempt: Attempt, launch: Launch, reason: Reason, message: str) -> None:
        # Signal first: an attempt with a recorded stop but no signal would run until the grace period is over.
        self._launchers[launch.launcher].stop(launch)
        self._record_stop(attempt, reason, message)

    def _take_back(self, attempt: Attempt, launch: Launch, reason: Reason, message: str) -> None:
        """Remove an attempt that has no process yet: nothing of it needs time to stop."""
        if attempt.stop_reason is None:
            self._record_stop(attempt, reason, message)
        self._launchers[launch.launcher].kill(launch)

    def _kill_if_overdue(self, attempt: Attempt, launch: Launch) -> None:
        """Kill an attempt if it was stopped because of its memory, or if its grace period is over."""
        requested_at = attempt.stop_requested_at
        is_over = requested_at is not None and (now() - requested_at).total_seconds() >= self._grace_period_seconds
        if attempt.stop_reason == Reason.OUT_OF_MEMORY or is_over:
            self._launchers[launch.launcher].kill(launch)

    def _handle_gone(self, job: Job, attempt: Attempt, launch: Launch, status: LaunchStatus) -> None:
        if status.phase is LaunchPhase.ENDED and attempt.observed_end is None:
            # What is killed next may take with it what there is to see.
            with self._leadership.write() as session:
                end = ObservedEnd.model_validate(status).model_dump(mode="json")
                AttemptRepository(session).update(attempt.id, observed_end=end)
        # Ranks may outlive their launch process and write until they are gone, also to the run directory in which the
        # next attempt would work.
        if not self._launchers[launch.launcher].kill(launch):
            # Their ends wake the loop.
            log.info("attempt_leaves_processes", job=job.id, attempt=attempt.number)
            return
        self._read_spool(job, attempt, launch)
        try:
            self._finalizer.record_end(job, attempt, status)
        except StateChangedError as error:
            log.info("job_changed_meanwhile", job=job.id, reason=str(error))
            return
        # Last, because the next round needs the launcher's exit code again where the database write has failed.
        self._launchers[launch.launcher].delete(launch)
        self._tail.forget(attempt)
        log.info("attempt_ended", job=job.id, attempt=attempt.number, exit_code=status.exit_code)

    def _read_spool(self, job: Job, attempt: Attempt, launch: Launch) -> None:
        """Take in the new reports of an attempt, where the service sees its spool; otherwise they are pushed alone."""
        if self._facts.shares_files(job):
            self._tail.ingest_new_lines(job, attempt, launch)

    def _record_stop(self, attempt: Attempt, reason: Reason, message: str) -> None:
        with self._leadership.write() as session:
            AttemptRepository(session).set_stop(attempt.id, reason, message, now())

    def _change(self, job: Job, change: Change) -> None:
        """Change the state of `job`, unless it has changed since `job` was read; the next round sees the new state."""
        try:
            with self._leadership.write() as session:
                jobs = JobRepository(session)
                jobs.change_state(jobs.expect(job.id, JobState(job.state)), change)
                if change.to_state is JobState.RUNNING:
                    AttemptRepository(session).set_running(job.id, job.num_attempts)
        except StateChangedError as error:
            log.info("job_changed_meanwhile", job=job.id, reason=str(error))
