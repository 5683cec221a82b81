"""SQL statements of retention: which jobs the rules choose, and their marks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    case,
    column,
    false,
    func,
    insert,
    literal,
    or_,
    select,
    table,
    update,
)
from sqlalchemy.orm import Session

from service.database.database import note_change
from service.retention.models import RunSize
from service.retention.rules import KEEP_LABEL, RetentionRules
from service.schemas import DueJob
from service.store.idempotency_repository import IdempotencyRepository
from service.store.metric_tables import STEPS
from service.store.models import Job, JobLabel
from service.store.removal import SHOWN
from service.store.states import NOT_ENDED

_HAS_ENDED = and_(Job.finished_at.is_not(None), Job.deleting_at.is_(None), Job.state.not_in(NOT_ENDED))
"""Condition that a job has ended, in the words of the index by end: with `in`, the one by state would be chosen."""

_SCHEDULES = table("schedules", column("previous_job_id", String), column("last_job_id", String))
"""Jobs that schedules name. Schedules submit jobs, and so are above retention, which knows no more of them."""


class RetentionRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_due(self, rules: RetentionRules, now: datetime, limit: int) -> list[DueJob]:
        """List at most `limit` jobs that the rules choose, first the one with the earliest end."""
        chosen = _select_due(rules, now).subquery()
        rows = self._session.execute(select(chosen).order_by(chosen.c.finished_at, chosen.c.id).limit(limit))
        return [DueJob.model_validate(row) for row in rows]

    def sum_due(self, rules: RetentionRules, now: datetime) -> tuple[int, int]:
        """Return the number of jobs that the rules choose, and the bytes of their run directories."""
        chosen = _select_due(rules, now).subquery()
        number, num_bytes = self._session.execute(select(func.count(), func.sum(chosen.c.num_bytes))).one()
        return number, int(num_bytes or 0)

    def mark(self, job_ids: Sequence[str], now: datetime) -> list[Job]:
        """Hide jobs until their files and rows are removed, and return them.

        Jobs that must stay after all are left out: looked at again, while nobody else can change them.
        """
        locked = select(Job.id).where(Job.id.in_(job_ids), _HAS_ENDED).order_by(Job.id).with_for_update()
        ids = self._session.scalars(locked).all()
        # Only now: a label or an heir may have come while the rows were waited for.
        marked = update(Job).where(Job.id.in_(ids), _is_free()).values(deleting_at=now).returning(Job.id)
        ids = self._session.scalars(marked.execution_options(synchronize_session=False)).all()
        IdempotencyRepository(self._session).forget_jobs(ids)
        for job_id in ids:
            note_change(self._session, job_id)
        return list(self._session.scalars(select(Job).where(Job.id.in_(ids)).order_by(Job.id).options(SHOWN)))

    def list_unmeasured(self, limit: int) -> list[Job]:
        """List at most `limit` ended jobs whose run directories were not measured yet."""
        query = select(Job).outerjoin(RunSize, RunSize.job_id == Job.id).where(_HAS_ENDED, RunSize.job_id.is_(None))
        return list(self._session.scalars(query.order_by(Job.finished_at, Job.id).limit(limit).options(SHOWN)))

    def add_sizes(self, sizes: dict[str, int]) -> None:
        """Record the bytes of run directories by job. Jobs that were deleted or measured meanwhile are left out."""
        stored = select(RunSize.job_id)
        known = select(Job.id).where(Job.id.in_(sizes), Job.id.not_in(stored)).with_for_update(read=True, of=Job)
        rows = [{"job_id": job_id, "num_bytes": sizes[job_id]} for job_id in self._session.scalars(known).all()]
        if rows:
            self._session.execute(insert(RunSize), rows)

    def list_with_points(self, before: datetime, limit: int) -> list[str]:
        """List at most `limit` jobs that ended before a time, may be touched, and have raw points."""
        has_points = select(STEPS.c.job_id).where(STEPS.c.job_id == Job.id).exists()
        query = select(Job.id).where(_HAS_ENDED, _is_free(), Job.finished_at < before, has_points)
        return list(self._session.scalars(query.order_by(Job.finished_at, Job.id).limit(limit)))


def _is_free() -> ColumnElement[bool]:
    """Return the condition that a job is neither kept, nor needed as a start by a job without an end or a schedule."""
    name, value = KEEP_LABEL
    kept = select(JobLabel.job_id).where(JobLabel.name == name, JobLabel.value == value)
    sources = select(Job.warm_start_job_id).where(Job.state.in_(NOT_ENDED), Job.warm_start_job_id.is_not(None))
    # The last job of a schedule becomes the previous one once it is seen to have succeeded.
    named = [select(name).where(name.is_not(None)) for name in (_SCHEDULES.c.previous_job_id, _SCHEDULES.c.last_job_id)]
    return and_(Job.id.not_in(kept), Job.id.not_in(sources.correlate(None)), *(Job.id.not_in(ids) for ids in named))


def _select_due(rules: RetentionRules, now: datetime) -> Select[*tuple[Any, ...]]:
    """Select id, owner, end, bytes and reason of the jobs that the rules choose."""
    newest_first = (Job.finished_at.desc(), Job.id.desc())
    place = func.row_number().over(partition_by=Job.owner, order_by=newest_first)
    total = func.sum(func.coalesce(RunSize.num_bytes, 0)).over(order_by=newest_first, rows=(None, 0))
    query = select(Job.id, Job.owner, Job.finished_at, RunSize.num_bytes).outerjoin(RunSize, RunSize.job_id == Job.id)
    query = query.where(_HAS_ENDED, _is_free())
    before = None if rules.days is None else now - timedelta(days=rules.days)
    if before is not None and rules.jobs_per_owner is None and rules.run_bytes is None:
        # The index has the old ones, and no others are read.
        query = query.where(Job.finished_at < before)
    ended = query.add_columns(
        (literal(0) if rules.jobs_per_owner is None else place).label("place"),
        (literal(0) if rules.run_bytes is None else total).label("total"),
    ).subquery()
    is_old = false() if before is None else ended.c.finished_at < before
    is_beyond = false() if rules.jobs_per_owner is None else ended.c.place > rules.jobs_per_owner
    is_large = false() if rules.run_bytes is None else ended.c.total > rules.run_bytes
    reason = case((is_old, "age"), (is_beyond, "count"), else_="bytes")
    columns = (ended.c.id, ended.c.owner, ended.c.finished_at, ended.c.num_bytes, reason.label("reason"))
    return select(*columns).where(or_(is_old, is_beyond, is_large))
