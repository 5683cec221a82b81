"""SQL statements on the checkpoints that runs have reported."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from dlrm.record import CheckpointReport
from service.jobs.models import ReportedCheckpoint


class CheckpointRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, job_id: str, attempt: int, report: CheckpointReport) -> bool:
        """Add a checkpoint of attempt `attempt`, and return True; one of the same step that was there before is
        replaced. Return False where its time is none that a calendar has."""
        try:
            time = datetime.fromtimestamp(report.time, UTC)
        except (OverflowError, ValueError, OSError):
            return False
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

    def remove_some(self, job_id: str, limit: int) -> int:
        """Remove at most `limit` checkpoints of a job, and return their number."""
        some = select(ReportedCheckpoint.step).where(ReportedCheckpoint.job_id == job_id).limit(limit)
        chosen = (ReportedCheckpoint.job_id == job_id, ReportedCheckpoint.step.in_(some))
        removed = delete(ReportedCheckpoint).where(*chosen).returning(ReportedCheckpoint.step)
        return len(self._session.execute(removed.execution_options(synchronize_session=False)).all())
