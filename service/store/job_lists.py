"""Lists of jobs, newest first. Each statement reads an index in its order, or few rows, however many jobs there are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, func, select, tuple_, union_all
from sqlalchemy.orm import Session

from service.ids import get_first_id
from service.store.job_rows import JOBS, LABELS, JobRow, get_columns
from service.store.job_texts import contains, select_containing
from service.store.models import Job, JobLabel
from service.store.states import JobState

FEW = 1000
"""Number of rows up to which a condition counts as met by few jobs, so that these are looked at one by one."""
MAX_CLOCK_STEP = timedelta(minutes=1)
"""Largest difference between the times of a job and of its id, which are read from the clock one after the other."""


@dataclass(frozen=True)
class JobFilter:
    """Conditions that all hold for the listed jobs; None and empty ones restrict nothing."""

    states: tuple[JobState, ...] = ()
    """States that a job may have."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels, by name and value, that a job must all have."""
    name: str | None = None
    owner: str | None = None
    created_after: datetime | None = None
    """Earliest time at which a job was submitted."""
    created_before: datetime | None = None
    """Time earlier than which a job was submitted."""
    finished_after: datetime | None = None
    """Earliest time at which a job ended."""
    finished_before: datetime | None = None
    """Time earlier than which a job ended."""
    text: str | None = None
    """Text to look for, see `service.store.job_texts`."""


class JobLists:
    def __init__(self, session: Session) -> None:
        self._session = session

    def list_page(
        self, chosen: JobFilter, *, visible_owner: str | None, before: str | None, limit: int
    ) -> list[JobRow]:
        """List at most `limit` jobs, newest first, that `chosen` selects and that have an id below `before`.

        Jobs that are being deleted are left out. visible_owner: the only owner whose jobs are listed; None lists the
        jobs of all owners.
        """
        columns = get_columns(self._session)
        if len(chosen.states) > 1:
            ids = self._session.scalars(self.select_ids(chosen, visible_owner, before, limit)).all()
            query = select(*columns).where(JOBS.id.in_(ids)).order_by(JOBS.id.desc())
        else:
            query = self._select(columns, chosen, visible_owner, before, limit)
        return [JobRow(*row) for row in self._session.execute(query)]

    def select_ids(self, chosen: JobFilter, visible_owner: str | None, before: str | None, limit: int) -> Select[Any]:
        """Select the ids of the jobs that `list_page` lists."""
        if len(chosen.states) <= 1:
            return self._select((JOBS.id,), chosen, visible_owner, before, limit)
        # The newest of every state, then the newest of these: an index has the jobs of one state in order.
        of_states = [replace(chosen, states=(state,)) for state in chosen.states]
        newest = [self._select((JOBS.id,), one, visible_owner, before, limit).subquery() for one in of_states]
        found = union_all(*(select(ids.c.id) for ids in newest)).subquery()
        return select(found.c.id).order_by(found.c.id.desc()).limit(limit)

    def _select(
        self,
        columns: Sequence[ColumnElement[Any]],
        chosen: JobFilter,
        visible_owner: str | None,
        before: str | None,
        limit: int,
    ) -> Select[Any]:
        """Select columns of the jobs that `list_page` lists, of at most one state."""
        conditions = self._list_conditions(chosen)
        if visible_owner is not None:
            conditions.append(JOBS.owner == visible_owner)
        conditions += [JOBS.state == state for state in chosen.states]
        query = select(*columns).where(*conditions)
        job_id, labels = JOBS.id, list(chosen.labels)
        if labels and not self._is_choice_small(chosen, visible_owner):
            # The index of the labels has the jobs of one in order.
            name, value = labels.pop()
            query = query.join(JobLabel.__table__, LABELS.job_id == JOBS.id)
            query = query.where(LABELS.name == name, LABELS.value == value)
            job_id = LABELS.job_id
        query = query.where(*(_has_label(name, value) for name, value in labels))
        return query.where(*_limit_ids(chosen, before, job_id)).order_by(job_id.desc()).limit(limit)

    def list_by_ids(self, job_ids: Sequence[str]) -> list[JobRow]:
        """List the jobs with these ids that are not being deleted."""
        query = select(*get_columns(self._session)).where(JOBS.id.in_(job_ids), JOBS.deleting_at.is_(None))
        return [JobRow(*row) for row in self._session.execute(query)]

    def find_owners(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Find the owners of jobs, of those that are being deleted too."""
        rows = self._session.execute(select(JOBS.id, JOBS.owner).where(JOBS.id.in_(job_ids)))
        return {row[0]: row[1] for row in rows}

    def list_labels(
        self, name: str | None, *, visible_owner: str | None, after: tuple[str, str] | None, limit: int
    ) -> list[tuple[str, str, int]]:
        """List labels and the number of jobs of each, by name and value, at most `limit` behind the label `after`.

        name: only values of this label; None lists all labels. visible_owner: the only owner whose jobs count; None
        counts the jobs of all owners. Jobs that are being deleted count too.
        """
        query = select(LABELS.name, LABELS.value, func.count())
        if visible_owner is not None:
            query = query.join(Job.__table__, JOBS.id == LABELS.job_id).where(JOBS.owner == visible_owner)
        if name is not None:
            query = query.where(LABELS.name == name)
        if after is not None:
            query = query.where(tuple_(LABELS.name, LABELS.value) > after)
        query = query.group_by(LABELS.name, LABELS.value).order_by(LABELS.name, LABELS.value).limit(limit)
        return [(row[0], row[1], row[2]) for row in self._session.execute(query)]

    def _list_conditions(self, chosen: JobFilter) -> list[ColumnElement[bool]]:
        """List the conditions on jobs but for states, labels and the range of ids."""
        conditions: list[ColumnElement[bool]] = [JOBS.deleting_at.is_(None)]
        if chosen.name is not None:
            conditions.append(JOBS.name == chosen.name)
        if chosen.owner is not None:
            conditions.append(JOBS.owner == chosen.owner)
        if chosen.created_after is not None:
            conditions.append(JOBS.created_at >= chosen.created_after)
        if chosen.created_before is not None:
            conditions.append(JOBS.created_at < chosen.created_before)
        if finished := _limit_finish(chosen):
            ids = select(JOBS.id).where(JOBS.deleting_at.is_(None), *finished)
            conditions += [JOBS.id.in_(ids)] if self._are_few(ids) else finished
        if chosen.text is not None:
            ids = select_containing(self._session, chosen.text)
            conditions.append(JOBS.id.in_(ids) if self._are_few(ids) else contains(chosen.text))
        return conditions

    def _is_choice_small(self, chosen: JobFilter, visible_owner: str | None) -> bool:
        """Whether few jobs have the owner, or few have the states, of a choice; False if it has neither."""
        owner = chosen.owner or visible_owner
        if owner is not None and self._are_few(select(JOBS.id).where(JOBS.owner == owner)):
            return True
        return bool(chosen.states) and all(
            self._are_few(select(JOBS.id).where(JOBS.state == state)) for state in chosen.states
        )

    def _are_few(self, query: Select[Any]) -> bool:
        """Whether a query has few rows; reads no more than that."""
        some = query.limit(FEW + 1).subquery()
        return (self._session.scalar(select(func.count()).select_from(some)) or 0) <= FEW


def _has_label(name: str, value: str) -> ColumnElement[bool]:
    own = JobLabel.__table__.alias().c
    is_found = (own.job_id == JOBS.id, own.name == name, own.value == value)
    # The offset keeps PostgreSQL from reading all jobs with the label first.
    return exists(select(own.name).where(*is_found).offset(0))


def _limit_finish(chosen: JobFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if chosen.finished_after is not None:
        conditions.append(JOBS.finished_at >= chosen.finished_after)
    if chosen.finished_before is not None:
        conditions.append(JOBS.finished_at < chosen.finished_before)
    return conditions


def _limit_ids(chosen: JobFilter, before: str | None, job_id: Any) -> list[ColumnElement[bool]]:
    """List conditions on the column `job_id` from which an index finds where the jobs of a time begin.

    The order of ids is the order of times, and no job ends before it is submitted, unless somebody sets the clock back.
    """
    conditions: list[ColumnElement[bool]] = [] if before is None else [job_id < before]
    if chosen.created_after is not None:
        conditions.append(job_id >= get_first_id("job", chosen.created_after - MAX_CLOCK_STEP))
    ends = [end for end in (chosen.created_before, chosen.finished_before) if end is not None]
    if ends:
        conditions.append(job_id < get_first_id("job", min(ends) + MAX_CLOCK_STEP))
    return conditions
