"""Writes down how an attempt has ended, and what that makes of its job."""

from dlrm.record import Outcome
from service.control.endings import Ending, Seen, ending
from service.database import Database
from service.jobs.attempts import AttemptRepository
from service.jobs.models import Attempt, Job
from service.jobs.reasons import Reason
from service.jobs.repository import Change, JobRepository
from service.jobs.states import AttemptState, JobState
from service.launchers.protocol import LaunchStatus
from service.times import now

ACTOR = "reconciler"


class Ended:
    def __init__(self, database: Database) -> None:
        self._database = database

    def attempt_ended(
        self, job: Job, attempt: Attempt, status: LaunchStatus, outcome: Outcome | None, last_log_line: str
    ) -> None:
        """An attempt whose processes are gone.

        Raises StateChangedError where the job has changed since `job` was read.
        """
        with self._database.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            current = jobs.expect(job.id, JobState(job.state))
            noted = session.get_one(Attempt, attempt.id)
            exit_code = status.exit_code if status.exit_code is not None or outcome is None else outcome.exit_code
            found = ending(
                Seen(
                    job_state=JobState(current.state),
                    outcome=outcome,
                    exit_code=status.exit_code,
                    last_log_line=last_log_line,
                    stop_reason=Reason(noted.stop_reason) if noted.stop_reason else None,
                    stop_message=current.message if current.state == JobState.CANCELLING else noted.stop_message,
                    num_restarts_left=_num_restarts_left(attempts.of_job(job.id), current),
                )
            )
            attempts.finish(attempt.id, found.attempt_state, found.reason, found.message, exit_code, now())
            if outcome is not None:
                jobs.set_metrics(job.id, outcome.metrics)
            _apply(jobs, current, attempt, found)

    def launch_failed(self, job_id: str, message: str) -> None:
        """An attempt that could not be started: the job waits for another one, as often as it may restart."""
        with self._database.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            job = jobs.expect(job_id, JobState.STARTING)
            all_attempts = attempts.of_job(job_id)
            reason, attempt = Reason.LAUNCH_FAILED, all_attempts[-1]
            attempts.finish(attempt.id, AttemptState.FAILED, reason, message, None, now())
            target = JobState.QUEUED if _num_restarts_left(all_attempts, job) > 0 else JobState.FAILED
            jobs.change_state(job, Change(target, reason, actor=ACTOR, message=message, attempt=attempt.number))


def _num_restarts_left(attempts: list[Attempt], job: Job) -> int:
    return int(job.spec["max_restarts"]) - (len(attempts) - 1)


def _apply(jobs: JobRepository, job: Job, attempt: Attempt, found: Ending) -> None:
    if job.state == JobState.STARTING and found.job_state is JobState.RECOVERING:
        # It has run, for so short a time that nobody saw it.
        jobs.change_state(job, Change(JobState.RUNNING, Reason.PROCESS_STARTED, actor=ACTOR, attempt=attempt.number))
    change = Change(found.job_state, found.reason, actor=ACTOR, message=found.message, attempt=attempt.number)
    jobs.change_state(job, change)
