"""SQL statements on attempts, and on the checkpoints that they have reported."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from dlrm.record import MAX_TIME, AttemptEnd, CheckpointReport
from service.reasons import Reason
from service.store.models import IS_ACTIVE, Attempt, Job, ReportedCheckpoint
from service.store.states import ACTIVE_STATES, ENDED, AttemptState


class AttemptRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, attempt: Attempt) -> None:
        self._session.add(attempt)
        self._session.flush()

    def get(self, attempt_id: str) -> Attempt | None:
        return self._session.get(Attempt, attempt_id)

    def list_by_job(self, job_id: str) -> list[Attempt]:
        return list(self._session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)))

    def get_by_number(self, job_id: str, number: int) -> Attempt | None:
        return self._session.scalar(select(Attempt).where(Attempt.job_id == job_id, Attempt.number == number))

    def list_active(self) -> list[Attempt]:
        """List the attempts that have not ended, of all jobs."""
        return list(self._session.scalars(select(Attempt).where(IS_ACTIVE)))

    def is_open(self, attempt_id: str) -> bool:
        """Whether neither an attempt nor its job has ended, as the database says now; an unknown one has."""
        query = select(Attempt.state, Job.state).join(Job, Job.id == Attempt.job_id).where(Attempt.id == attempt_id)
        row = self._session.execute(query).one_or_none()
        return row is not None and row[0] in ACTIVE_STATES and row[1] not in ENDED

    def update(self, attempt_id: str, **values: Any) -> None:
        """Set columns of an attempt, whatever they were."""
        self._session.execute(update(Attempt).where(Attempt.id == attempt_id).values(values))

    def set_running(self, job_id: str, number: int) -> None:
        self._session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id, Attempt.number == number, Attempt.state == AttemptState.STARTING)
            .values(state=AttemptState.RUNNING.value)
        )

    def set_stop(self, attempt_id: str, reason: Reason, message: str, requested_at: datetime) -> None:
        """Record why the service stops this attempt; a reason that is already recorded stays."""
        self._session.execute(
            update(Attempt)
            .where(Attempt.id == attempt_id, Attempt.stop_reason.is_(None))
            .values(stop_reason=reason.value, stop_message=message, stop_requested_at=requested_at)
        )

    def get_reported_end(self, attempt_id: str) -> AttemptEnd | None:
        """Return the end of an attempt as its launch process has reported it; None if it has not."""
        values = self._session.scalar(select(Attempt.reported_end).where(Attempt.id == attempt_id))
        return None if values is None else AttemptEnd.model_validate(values)

    def finish(
        self, attempt_id: str, state: AttemptState, reason: Reason, message: str, exit_code: int | None, at: datetime
    ) -> None:
        self._session.execute(
            update(Attempt)
            .where(Attempt.id == attempt_id, Attempt.state.in_(ACTIVE_STATES))
            .values(state=state.value, reason=reason.value, message=message, exit_code=exit_code, finished_at=at)
        )


class CheckpointRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, job_id: str, attempt: int, report: CheckpointReport) -> bool:
        """Add a checkpoint of attempt `attempt`, and return True; one of the same step that was there before is
        replaced. Return False where its time is none that a calendar has."""
        if not 0 <= report.time < MAX_TIME:
            return False
        time = datetime.fromtimestamp(report.time, UTC)
        values = report.model_dump(exclude={"time"})
        self._session.merge(ReportedCheckpoint(job_id=job_id, attempt=attempt, time=time, **values))
        self._session.flush()
        return True

    def remove(self, job_id: str, steps: Sequence[int]) -> None:
        """Remove the checkpoints of these steps, as far as there are any."""
        chosen = (ReportedCheckpoint.job_id == job_id, ReportedCheckpoint.step.in_(steps))
        self._session.execute(delete(ReportedCheckpoint).where(*chosen).execution_options(synchronize_session=False))

    def list_by_job(self, job_id: str) -> list[ReportedCheckpoint]:
        """List the checkpoints of a job, newest first."""
        query = select(ReportedCheckpoint).where(ReportedCheckpoint.job_id == job_id)
        return list(self._session.scalars(query.order_by(ReportedCheckpoint.step.desc())))

    def find_newest_step(self, job_id: str, attempt: int) -> int | None:
        """Return the step of the newest checkpoint that attempt `attempt` wrote; None if absent."""
        chosen = (ReportedCheckpoint.job_id == job_id, ReportedCheckpoint.attempt == attempt)
        return self._session.scalar(select(func.max(ReportedCheckpoint.step)).where(*chosen))
