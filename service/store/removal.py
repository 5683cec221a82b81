"""SQL statements that remove the rows of deleted jobs, and raw points, a bounded number in each transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, inspect, select, tuple_
from sqlalchemy.orm import Session, lazyload, load_only

from service.database import Base
from service.store.models import Attempt, Event, Job, Metric, ReportedCheckpoint, StoredLogPart

SHOWN = load_only(Job.id, Job.owner, Job.launcher, Job.run_directory, Job.deleting_at)
"""Columns of a job that its removal needs: documents may be large."""
JOB_ROWS = 10
"""Rows that a job stands for beside its reports: labels, attempts and positions go with it."""


RAW_POINTS = Metric, Metric.kind == "step"
"""Table of the raw points of curves, and the condition that a row is one."""


class RemovalRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_deleting(self, limit: int) -> list[Job]:
        """List at most `limit` jobs that are being deleted, in the order of the requests."""
        query = select(Job).where(Job.deleting_at.is_not(None)).order_by(Job.deleting_at, Job.id).limit(limit)
        return list(self._session.scalars(query.options(SHOWN, lazyload(Job.labels))))

    def remove_some(self, job_ids: Sequence[str], max_rows: int) -> list[str]:
        """Remove jobs, one after the other, with all rows that belong to them, as far as `max_rows` go.

        Returns the ids of jobs without any rows left.
        """
        removed: list[str] = []
        for job_id in job_ids:
            max_rows -= self._remove_reports(job_id, max_rows)
            if max_rows <= 0:
                break
            self._session.execute(delete(Job).where(Job.id == job_id))
            removed.append(job_id)
            max_rows -= JOB_ROWS
        return removed

    def _remove_reports(self, job_id: str, limit: int) -> int:
        """Remove at most `limit` reports, parts of logs, checkpoints and events of a job; return how many."""
        attempts = select(Attempt.id).where(Attempt.job_id == job_id)
        chosen: tuple[tuple[type[Base], ColumnElement[bool]], ...] = (
            (Metric, Metric.job_id == job_id),
            (StoredLogPart, StoredLogPart.attempt_id.in_(attempts)),
            (ReportedCheckpoint, ReportedCheckpoint.job_id == job_id),
            (Event, Event.job_id == job_id),
        )
        num_left = limit
        for table, is_own in chosen:
            if num_left > 0:
                num_left -= self._remove_rows(table, is_own, num_left)
        return limit - num_left

    def remove_points(self, job_ids: Sequence[str], max_rows: int) -> list[str]:
        """Remove raw points of jobs, one after the other, as far as `max_rows` go.

        Returns the first ids: of the jobs that have none any more.
        """
        table, is_raw = RAW_POINTS
        done: list[str] = []
        for job_id in job_ids:
            max_rows -= self._remove_rows(table, and_(table.job_id == job_id, is_raw), max_rows)
            if max_rows <= 0:
                break
            done.append(job_id)
        return done

    def _remove_rows(self, table: type[Base], is_chosen: ColumnElement[bool], limit: int) -> int:
        """Remove at most `limit` rows of a table; return how many."""
        key: Sequence[ColumnElement[Any]] = inspect(table).primary_key
        some = select(*key).where(is_chosen).limit(limit)
        removed = delete(table).where(tuple_(*key).in_(some)).returning(key[0])
        return len(self._session.execute(removed.execution_options(synchronize_session=False)).all())
