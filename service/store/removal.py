"""SQL statements that remove the rows of deleted jobs, and raw points, a bounded number in each transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, inspect, select, tuple_
from sqlalchemy.orm import Session, load_only

from service.database import Base
from service.store.metric_tables import METRIC_TABLES, STEPS
from service.store.models import Attempt, Event, Job, ReportedCheckpoint, StoredLogPart

SHOWN = load_only(
    *(Job.id, Job.name, Job.owner, Job.launcher, Job.num_attempts, Job.run_directory, Job.model_path), raiseload=True
)
"""Option of a query for jobs with the columns that their removal needs."""
JOB_ROWS = 10
"""Rows that a job stands for beside its reports: labels, attempts and positions go with it."""


class RemovalRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_deleting(self, limit: int) -> list[Job]:
        """List at most `limit` jobs that are being deleted, in the order of the requests."""
        query = select(Job).where(Job.deleting_at.is_not(None)).order_by(Job.deleting_at, Job.id).limit(limit)
        return list(self._session.scalars(query.options(SHOWN)))

    def remove_some(self, job_ids: Sequence[str], max_rows: int) -> list[str]:
        """Remove the first of some jobs with all rows that belong to them, or a part of these, as far as `max_rows` go.

        Returns the ids of jobs without any rows left.
        """
        some = job_ids[: max(1, max_rows // JOB_ROWS)]
        attempts = select(Attempt.id).where(Attempt.job_id.in_(some))
        chosen: tuple[tuple[type[Base], ColumnElement[bool]], ...] = (
            (StoredLogPart, StoredLogPart.attempt_id.in_(attempts)),
            (ReportedCheckpoint, ReportedCheckpoint.job_id.in_(some)),
            (Event, Event.job_id.in_(some)),
        )
        for table in METRIC_TABLES:
            for job_id in self._list_with_rows(table, some):
                max_rows -= self._remove_metrics(table, job_id, max_rows)
                if max_rows <= 0:
                    return []
        for table, is_own in chosen:
            max_rows -= self._remove_rows(table, is_own, max_rows)
            if max_rows <= 0:
                return []
        self._session.execute(delete(Job).where(Job.id.in_(some)).execution_options(synchronize_session=False))
        return list(some)

    def remove_points(self, job_ids: Sequence[str], max_rows: int) -> list[str]:
        """Remove raw points of jobs, one after the other, as far as `max_rows` go.

        Returns the first ids: of the jobs that have none any more.
        """
        done: list[str] = []
        for job_id in job_ids:
            max_rows -= self._remove_metrics(STEPS, job_id, max_rows)
            if max_rows <= 0:
                break
            done.append(job_id)
        return done

    def _list_with_rows(self, table: Table, job_ids: Sequence[str]) -> Sequence[str]:
        """List the jobs, among some, that have rows in a table of metrics."""
        has_rows = select(table.c.job_id).where(table.c.job_id == Job.id).exists()
        return self._session.scalars(select(Job.id).where(Job.id.in_(job_ids), has_rows).order_by(Job.id)).all()

    def _remove_metrics(self, table: Table, job_id: str, limit: int) -> int:
        """Remove at most `limit` rows of a job from a table of metrics, the first ones; return how many.

        They are one range of the primary key, however many rows are left.
        """
        key = [column for column in table.primary_key if column.name != "job_id"]
        rows = select(*key).where(table.c.job_id == job_id).order_by(*key)
        last = self._session.execute(rows.offset(limit - 1).limit(1)).one_or_none()
        chosen = [table.c.job_id == job_id]
        if last is not None:
            chosen.append(tuple_(*key) <= tuple_(*last))
        return len(self._session.execute(delete(table).where(*chosen).returning(key[0])).all())

    def _remove_rows(self, table: type[Base], is_chosen: ColumnElement[bool], limit: int) -> int:
        """Remove at most `limit` rows of a table; return how many."""
        key: Sequence[ColumnElement[Any]] = inspect(table).primary_key
        some = select(*key).where(is_chosen).limit(limit)
        removed = delete(table).where(tuple_(*key).in_(some)).returning(key[0])
        return len(self._session.execute(removed.execution_options(synchronize_session=False)).all())
