"""Writes down how an attempt has ended, and what that makes of its job."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from dlrm.record import Outcome
from service.control.back_off import BackOff
from service.control.endings import Ending, Seen, ending
from service.control.restarts import UNCOUNTED, num_restarts_left
from service.database import Database
from service.jobs.attempts import AttemptRepository
from service.jobs.checkpoints import newest_step_saved_since
from service.jobs.models import Attempt, Job
from service.jobs.reasons import Reason
from service.jobs.repository import Change, JobRepository
from service.jobs.states import AttemptState, JobState
from service.launchers.protocol import LaunchStatus
from service.times import now

ACTOR = "reconciler"


class Ended:
    def __init__(self, database: Database, back_off: BackOff) -> None:
        self._database = database
        self._back_off = back_off

    def attempt_ended(
        self, job: Job, attempt: Attempt, status: LaunchStatus, outcome: Outcome | None, last_log_line: str
    ) -> None:
        """An attempt whose processes are gone.

        Raises StateChangedError where the job has changed since `job` was read.
        """
        saved_step = newest_step_saved_since(job, attempt.started_at)
        with self._database.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            current = jobs.expect(job.id, JobState(job.state))
            noted = session.get_one(Attempt, attempt.id)
            attempts.set_saved_step(attempt.id, saved_step)
            exit_code = status.exit_code if status.exit_code is not None or outcome is None else outcome.exit_code
            found = ending(
                Seen(
                    job_state=JobState(current.state),
                    outcome=outcome,
                    exit_code=status.exit_code,
                    last_log_line=last_log_line,
                    stop_reason=Reason(noted.stop_reason) if noted.stop_reason else None,
                    stop_message=_who_asked(current, noted),
                    num_restarts_left=num_restarts_left(attempts.of_job(job.id), current.spec["max_restarts"]),
                )
            )
            attempts.finish(attempt.id, found.attempt_state, found.reason, found.message, exit_code, now())
            if outcome is not None:
                jobs.set_metrics(job.id, outcome.metrics)
            self._apply(jobs, current, attempts.of_job(job.id), found)

    def launch_failed(self, job_id: str, message: str) -> None:
        """An attempt that could not be started: the job waits for another one, as often as it may restart."""
        with self._database.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            job = jobs.expect(job_id, JobState.STARTING)
            all_attempts = attempts.of_job(job_id)
            reason, attempt = Reason.LAUNCH_FAILED, all_attempts[-1]
            attempts.finish(attempt.id, AttemptState.FAILED, reason, message, None, now())
            change = Change(JobState.FAILED, reason, actor=ACTOR, message=message, attempt=attempt.number)
            if num_restarts_left(all_attempts, job.spec["max_restarts"]) > 0:
                change = self._with_restart(replace(change, to_state=JobState.QUEUED), job, all_attempts)
            jobs.change_state(job, change)

    def _apply(self, jobs: JobRepository, job: Job, attempts: Sequence[Attempt], found: Ending) -> None:
        number = attempts[-1].number
        change = Change(found.job_state, found.reason, actor=ACTOR, message=found.message, attempt=number)
        if found.job_state is JobState.RECOVERING:
            if job.state == JobState.STARTING:
                # It has run, for so short a time that nobody saw it.
                jobs.change_state(job, Change(JobState.RUNNING, Reason.PROCESS_STARTED, actor=ACTOR, attempt=number))
            change = self._with_restart(change, job, attempts)
        jobs.change_state(job, change)

    def _with_restart(self, change: Change, job: Job, attempts: Sequence[Attempt]) -> Change:
        """`change`, telling when the next attempt starts, and how many there are if none gets further."""
        delay_seconds = self._back_off.seconds_after(attempts)
        restarts_at = now() + timedelta(seconds=delay_seconds)
        num_left = num_restarts_left(attempts, job.spec["max_restarts"]) + (change.reason in UNCOUNTED)
        which = f"attempt {len(attempts) + 1} of at most {len(attempts) + num_left}, if none gets further,"
        plan = f"{which} starts {delay_seconds:g} s later, at {restarts_at:%H:%M:%S} UTC"
        return replace(change, message="; ".join(filter(None, (change.message, plan))), restarts_at=restarts_at)


def _who_asked(job: Job, attempt: Attempt) -> str:
    """Why the attempt was to end; the message of a job that is to end, or to pause, names who asked for it."""
    return job.message if job.state == JobState.CANCELLING else attempt.stop_message or job.message
