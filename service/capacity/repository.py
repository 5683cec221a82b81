"""SQL statements on what jobs hold, and have held. Each reads the jobs that run, or an index from its end."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, TextClause, func, or_, select
from sqlalchemy.orm import Session

from service.ids import get_first_id
from service.store.models import IS_ACTIVE, IS_WATCHED, Attempt, Job
from service.store.states import HOLDING, JobState


class HeldAttempt(NamedTuple):
    """An attempt and what it holds, or has held, on all its machines."""

    job_id: str
    number: int
    created_at: datetime
    """Time at which its job was submitted."""
    is_queued: bool
    """Whether its job waits again now."""
    started_at: datetime
    finished_at: datetime | None
    """Time of its end; None before it."""
    num_cores: int
    memory_bytes: int
    num_gpus: int


_COLUMNS = (
    Attempt.job_id,
    Attempt.number,
    Job.created_at,
    Job.state == JobState.QUEUED,
    Attempt.started_at,
    Attempt.finished_at,
    Job.num_cores * Job.num_nodes,
    Job.memory_bytes * Job.num_nodes,
    Job.num_gpus * Job.num_nodes,
)


class CapacityRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_holding(self, owner: str | None, limit: int) -> list[Job]:
        """List the newest jobs that hold resources. owner: the only owner whose jobs are listed; None lists all."""
        query = select(Job).where(IS_WATCHED, Job.state.in_(HOLDING))
        if owner is not None:
            query = query.where(Job.owner == owner)
        return list(self._session.scalars(query.order_by(Job.id.desc()).limit(limit)))

    def count_queued(self, owner: str | None) -> dict[str, int]:
        """Count the waiting jobs by owner. owner: the only one whose jobs are counted; None counts all."""
        query = select(Job.owner, func.count()).where(Job.state == JobState.QUEUED)
        if owner is not None:
            query = query.where(Job.owner == owner)
        return {row[0]: row[1] for row in self._session.execute(query.group_by(Job.owner))}

    def list_nodes(self) -> list[tuple[Job, str | None]]:
        """List the jobs that hold resources, each with the machines of its attempt as its launcher names them."""
        query = select(Job, Attempt.node).join(Attempt, Attempt.job_id == Job.id)
        return [(row[0], row[1]) for row in self._session.execute(query.where(IS_ACTIVE, Job.state.in_(HOLDING)))]


class HistoryRepository:
    def __init__(self, session: Session, launcher: str) -> None:
        """Look at the jobs of one launcher."""
        self._session = session
        self._launcher = launcher

    def list_active(self) -> list[HeldAttempt]:
        """List the attempts that have not ended."""
        return self._list_attempts(IS_ACTIVE, limit=None)

    def list_ended(self, since: datetime, limit: int) -> list[HeldAttempt]:
        """List the attempts that have ended since a time, the last ones first."""
        return self._list_attempts(Attempt.finished_at >= since, limit=limit)

    def list_never_started(self, since: datetime, limit: int) -> list[tuple[datetime, datetime | None]]:
        """List when jobs were submitted, and when they ended without a start, since a time; the last ones first."""
        query = select(Job.created_at, Job.finished_at).where(
            Job.finished_at >= since,
            Job.deleting_at.is_(None),
            or_(Job.state == JobState.CANCELLED, Job.state == JobState.FAILED),
            Job.launcher == self._launcher,
            Job.num_attempts == 0,
        )
        return [(row[0], row[1]) for row in self._session.execute(query.order_by(Job.finished_at.desc()).limit(limit))]

    def list_queued(self, since: datetime, limit: int) -> list[tuple[str, datetime]]:
        """List waiting jobs that were submitted since a time, with this time, the newest first."""
        query = select(Job.id, Job.created_at).where(*self._is_queued(), Job.id >= get_first_id("job", since))
        return [(row[0], row[1]) for row in self._session.execute(query.order_by(Job.id.desc()).limit(limit))]

    def count_queued_before(self, time: datetime) -> int:
        """Count the waiting jobs that were submitted before a time."""
        query = select(func.count()).select_from(Job).where(*self._is_queued(), Job.id < get_first_id("job", time))
        return self._session.scalar(query) or 0

    def _is_queued(self) -> tuple[ColumnElement[bool], ...]:
        return Job.state == JobState.QUEUED, Job.launcher == self._launcher

    def _list_attempts(self, condition: ColumnElement[bool] | TextClause, limit: int | None) -> list[HeldAttempt]:
        query = select(*_COLUMNS).join(Job, Job.id == Attempt.job_id).where(condition, Job.launcher == self._launcher)
        rows = self._session.execute(query.order_by(Attempt.finished_at.desc()).limit(limit))
        return [HeldAttempt(*row) for row in rows]
