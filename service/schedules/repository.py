"""SQL statements on schedules."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from service.schedules.models import Schedule
from service.store.models import Job
from service.store.states import JobState


class ScheduleRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, schedule: Schedule) -> None:
        """Add a schedule. Raises IntegrityError if its owner has one of that name."""
        self._session.add(schedule)
        self._session.flush()

    def get(self, schedule_id: str) -> Schedule | None:
        return self._session.get(Schedule, schedule_id)

    def lock(self, schedule_id: str) -> Schedule | None:
        """Return a schedule, and lock its row until the transaction ends; None if absent."""
        return self._session.get(Schedule, schedule_id, with_for_update=True, populate_existing=True)

    def list_visible(self, owner: str | None) -> list[Schedule]:
        """List schedules by their names. owner: the only owner whose schedules are listed; None lists all."""
        query = select(Schedule).order_by(Schedule.owner, Schedule.name)
        return list(self._session.scalars(query if owner is None else query.where(Schedule.owner == owner)))

    def count(self, owner: str) -> int:
        return self._session.scalar(select(func.count()).where(Schedule.owner == owner)) or 0

    def list_due(self, at: datetime, limit: int) -> list[Schedule]:
        """List at most `limit` schedules whose next time has come, the longest waiting one first.

        A paused one has a next time only if somebody had it run now.
        """
        query = select(Schedule).where(Schedule.next_at <= at).order_by(Schedule.next_at, Schedule.id).limit(limit)
        return list(self._session.scalars(query))

    def list_succeeded(self) -> list[Schedule]:
        """List the schedules whose last job has succeeded, and that do not know it yet."""
        query = select(Schedule).join(Job, Job.id == Schedule.last_job_id)
        query = query.where(Schedule.last_job_due_at.is_not(None), Job.state == JobState.SUCCEEDED)
        return list(self._session.scalars(query))

    def update(self, schedule_id: str, **values: Any) -> None:
        self._session.execute(update(Schedule).where(Schedule.id == schedule_id).values(values))

    def remove(self, schedule_id: str) -> None:
        self._session.execute(delete(Schedule).where(Schedule.id == schedule_id))
