"""Record of the end of an attempt, and the resulting state of its job."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy.orm import Session

from dlrm.record import EvaluationSource, list_quality_warnings
from service.control.restart_policy import UNCOUNTED, BackOff, count_restarts_left, has_progressed
from service.control.verdict import ExitObservation, Verdict, decide
from service.launchers.protocol import LaunchError, LaunchStatus
from service.leader.leadership import Leadership
from service.observability.telemetry import Telemetry
from service.reasons import RECONCILER, Reason
from service.store.attempt_repository import AttemptRepository, CheckpointRepository
from service.store.job_repository import Change, JobRepository
from service.store.models import Attempt, Job
from service.store.run_facts import RunFacts
from service.store.states import ENDED, AttemptState, JobState
from service.times import now


class AttemptFinalizer:
    def __init__(self, leadership: Leadership, facts: RunFacts, back_off: BackOff, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._leadership = leadership
        self._facts = facts
        self._back_off = back_off

    def record_end(self, job: Job, attempt: Attempt, status: LaunchStatus) -> None:
        """Record the end of an attempt whose processes are gone, and change the state of its job.

        What they have reported has come by then, or comes no more: nothing is waited for. Raises StateChangedError
        if the state of the job has changed since `job` was read.
        """
        end, saved_step = self._facts.read_end(job, attempt, status), self._facts.find_newest_saved_step(job, attempt)
        outcome = end.outcome
        with self._leadership.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            current = jobs.expect(job.id, JobState(job.state))
            stored_attempt = session.get_one(Attempt, attempt.id)
            told_step = _record_left_files(session, current, attempt, end, saved_step)
            rank_ends = [rank_end.model_dump() for rank_end in end.rank_ends]
            attempts.update(attempt.id, saved_step=told_step, rank_ends=rank_ends)
            exit_code = status.exit_code if status.exit_code is not None or outcome is None else outcome.exit_code
            all_attempts = attempts.list_by_job(job.id)
            verdict = decide(
                ExitObservation(
                    job_state=JobState(current.state),
                    end=end,
                    stop_reason=Reason(stored_attempt.stop_reason) if stored_attempt.stop_reason else None,
                    stop_message=_find_stop_message(current, stored_attempt),
                    num_restarts_left=count_restarts_left(all_attempts, current.max_restarts),
                    has_progressed=has_progressed(all_attempts[-1]),
                )
            )
            attempts.finish(attempt.id, verdict.attempt_state, verdict.reason, verdict.message, exit_code, now())
            if outcome is not None:
                warnings = list_quality_warnings(outcome.metrics, EvaluationSource.SHARE)
                jobs.set_metrics(current, outcome.metrics, has_warnings=bool(warnings))
            self._apply_verdict(jobs, current, attempts.list_by_job(job.id), verdict)
        self._count_end(attempt, verdict.attempt_state, verdict.reason, is_repeated=verdict.job_state not in ENDED)

    def record_fault(self, job: Job, attempt: Attempt | None, message: str) -> None:
        """Record the end of a job that the service cannot look after; a job that was cancelled is CANCELLED.

        attempt: its last one; None if absent. Raises StateChangedError as `record_end`.
        """
        with self._leadership.write() as session:
            current = JobRepository(session).expect(job.id, JobState(job.state))
            if attempt is not None:
                at, reason = now(), Reason.INTERNAL_ERROR
                AttemptRepository(session).finish(attempt.id, AttemptState.FAILED, reason, message, None, at)
            state = JobState.CANCELLED if job.state == JobState.CANCELLING else JobState.FAILED
            number = None if attempt is None else attempt.number
            change = Change(state, Reason.INTERNAL_ERROR, actor=RECONCILER, message=message, attempt=number)
            JobRepository(session).change_state(current, change)

    def record_failed_launch(self, job_id: str, error: LaunchError) -> None:
        """Record an attempt that could not be started.

        The job waits for the next attempt, or fails if it has no restarts left. Raises StateChangedError if the
        job is no longer starting.
        """
        with self._leadership.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            job = jobs.expect(job_id, JobState.STARTING)
            all_attempts = attempts.list_by_job(job_id)
            reason, message, attempt = error.reason, str(error), all_attempts[-1]
            attempts.finish(attempt.id, AttemptState.FAILED, reason, message, None, now())
            change = Change(JobState.FAILED, reason, actor=RECONCILER, message=message, attempt=attempt.number)
            if reason in UNCOUNTED or count_restarts_left(all_attempts, job.max_restarts) > 0:
                change = self._with_restart(replace(change, to_state=JobState.QUEUED), job, all_attempts)
            jobs.change_state(job, change)
        self._count_end(attempt, AttemptState.FAILED, reason, is_repeated=change.to_state not in ENDED)

    def _count_end(self, attempt: Attempt, state: AttemptState, reason: Reason, *, is_repeated: bool) -> None:
        self._telemetry.end_attempt(attempt.id, state, reason)
        if is_repeated and state is AttemptState.FAILED:
            self._telemetry.restarts.inc()

    def _apply_verdict(self, jobs: JobRepository, job: Job, attempts: Sequence[Attempt], verdict: Verdict) -> None:
        number = attempts[-1].number
        change = Change(verdict.job_state, verdict.reason, actor=RECONCILER, message=verdict.message, attempt=number)
        if verdict.job_state is JobState.RECOVERING:
            if job.state == JobState.STARTING:
                # The attempt ran so briefly that no round saw it running.
                jobs.change_state(
                    job, Change(JobState.RUNNING, Reason.PROCESS_STARTED, actor=RECONCILER, attempt=number)
                )
            change = self._with_restart(change, job, attempts)
        jobs.change_state(job, change)

    def _with_restart(self, change: Change, job: Job, attempts: Sequence[Attempt]) -> Change:
        """Return `change` with the time of the next attempt, and with that time and the highest possible number of
        attempts in its message."""
        delay_seconds = self._back_off.compute_delay_seconds(attempts)
        restarts_at = now() + timedelta(seconds=delay_seconds)
        num_left = count_restarts_left(attempts, job.max_restarts) + (change.reason in UNCOUNTED)
        attempt_text = f"attempt {len(attempts) + 1} of at most {len(attempts) + num_left} (if none makes progress)"
        plan = f"{attempt_text} starts {delay_seconds:g} s later, at {restarts_at:%H:%M:%S} UTC"
        return replace(change, message="; ".join(filter(None, (change.message, plan))), restarts_at=restarts_at)


def _record_left_files(
    session: Session, job: Job, attempt: Attempt, end: LaunchStatus, saved_step: int | None
) -> int | None:
    """Record the files that an attempt names at its end and no push has reported, for example while the service was
    away.

    saved_step: step of its newest checkpoint that is known; None if absent. Returns it as it is then.
    """
    if end.model_path is not None and job.model_path is None:
        JobRepository(session).update(job.id, model_path=end.model_path)
    named = end.checkpoint
    if named is None or (saved_step is not None and saved_step >= named.step):
        return saved_step
    return named.step if CheckpointRepository(session).put(job.id, attempt.number, named) else saved_step


def _find_stop_message(job: Job, attempt: Attempt) -> str:
    """Return the message about the stop request; it names the user where a user requested it."""
    return job.message if job.state == JobState.CANCELLING else attempt.stop_message or job.message
