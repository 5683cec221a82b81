"""Numbers of jobs by what a list of them can be narrowed to, by indexes alone or of so many jobs at most."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, func, select
from sqlalchemy.orm import Session

from service.ids import get_first_id
from service.store.job_lists import JobFilter, JobLists
from service.store.job_rows import JOBS, LABELS

MAX_COUNTED = 10_000
"""Number of the newest jobs, which are counted if no index has the numbers."""
MAX_VALUES = 10
"""Most frequent values of a label that are counted one by one."""
MAX_LABELS = 200
"""Values of all labels together."""


@dataclass(frozen=True)
class LabelValues:
    """Values of the labels of one name."""

    name: str
    num_values: int
    """Number of different values."""
    values: dict[str, int]
    """Number of jobs by value, most frequent first, at most MAX_VALUES."""


@dataclass(frozen=True)
class JobFacets:
    """Numbers of jobs, most frequent first."""

    num_jobs: int
    """Number of jobs that all filters select."""
    states: dict[str, int]
    """Numbers by state of the jobs that all filters but the states select."""
    owners: dict[str, int]
    """Numbers by owner of the jobs that all filters but the owner select."""
    labels: list[LabelValues]
    """Labels of the jobs that all filters select, by name."""
    is_exact: bool
    """Whether `num_jobs`, `states` and `owners` are not of the newest MAX_COUNTED jobs alone."""
    are_labels_exact: bool
    """Whether `labels` are not of the newest MAX_COUNTED jobs alone."""


def count_facets(session: Session, chosen: JobFilter, *, visible_owner: str | None) -> JobFacets:
    """Count the jobs that `chosen` selects. visible_owner: as in `JobLists.list_page`.

    States and owners have an index, whatever the time of submission; so have labels if nothing else is chosen. Jobs
    that are being deleted count where an index has the numbers.
    """
    counter = _Counter(session, visible_owner)
    has_index = chosen == JobFilter(
        chosen.states, owner=chosen.owner, created_after=chosen.created_after, created_before=chosen.created_before
    )
    if has_index:
        states, owners = counter.count_states_and_owners(chosen)
    else:
        states = counter.count_newest(replace(chosen, states=()), JOBS.state)
        owners = counter.count_newest(replace(chosen, owner=None), JOBS.owner)
    is_all = chosen == JobFilter() and visible_owner is None
    num_jobs = sum(number for state, number in states.items() if not chosen.states or state in chosen.states)
    return JobFacets(
        num_jobs=num_jobs,
        states=dict(states.most_common()),
        owners=dict(owners.most_common()),
        labels=counter.count_labels(None if is_all else chosen),
        is_exact=has_index or max(states.total(), owners.total()) < MAX_COUNTED,
        are_labels_exact=is_all or num_jobs < MAX_COUNTED,
    )


class _Counter:
    def __init__(self, session: Session, visible_owner: str | None) -> None:
        self._session = session
        self._visible_owner = visible_owner

    def count_states_and_owners(self, chosen: JobFilter) -> tuple[Counter[str], Counter[str]]:
        """Count the jobs of a time by state, of the chosen owner, and by owner, of the chosen states."""
        query = select(JOBS.owner, JOBS.state, func.count()).where(*_limit_ids(chosen))
        if self._visible_owner is not None:
            query = query.where(JOBS.owner == self._visible_owner)
        states, owners = Counter[str](), Counter[str]()
        rows = self._session.execute(query.group_by(JOBS.owner, JOBS.state))
        for owner, state, number in ((row[0], row[1], row[2]) for row in rows):
            if chosen.owner in (None, owner):
                states[state] += number
            if not chosen.states or state in chosen.states:
                owners[owner] += number
        return states, owners

    def count_newest(self, chosen: JobFilter, column: Any) -> Counter[str]:
        """Count the newest jobs by the values of a column."""
        ids = self._select_newest(chosen)
        query = select(column, func.count()).join(ids, ids.c.id == JOBS.id).group_by(column)
        return Counter({row[0]: row[1] for row in self._session.execute(query)})

    def count_labels(self, chosen: JobFilter | None) -> list[LabelValues]:
        """Count the labels of the newest chosen jobs, by name. chosen: None counts the labels of all jobs."""
        counts = select(LABELS.name, LABELS.value, func.count().label("number")).group_by(LABELS.name, LABELS.value)
        if chosen is not None:
            ids = self._select_newest(chosen)
            counts = counts.join(ids, ids.c.id == LABELS.job_id)
        found: dict[str, LabelValues] = {}
        for row in self._session.execute(_select_most_frequent(counts)):
            found.setdefault(row[0], LabelValues(row[0], row[3], {})).values[row[1]] = row[2]
        return list(found.values())

    def _select_newest(self, chosen: JobFilter) -> FromClause:
        return JobLists(self._session).select_ids(chosen, self._visible_owner, None, MAX_COUNTED).subquery()


def _limit_ids(chosen: JobFilter) -> list[ColumnElement[bool]]:
    """List conditions on ids, which sort by the time of submission."""
    conditions: list[ColumnElement[bool]] = []
    if chosen.created_after is not None:
        conditions.append(JOBS.id >= get_first_id("job", chosen.created_after))
    if chosen.created_before is not None:
        conditions.append(JOBS.id < get_first_id("job", chosen.created_before))
    return conditions


def _select_most_frequent(counts: Select[str, str, int]) -> Select[str, str, int, int]:
    """Select the most frequent values of each name of `counts`, with the number of all its values."""
    count = counts.subquery().c
    order = (count.number.desc(), count.value)
    ranked = select(
        *(count.name, count.value, count.number),
        func.count().over(partition_by=count.name).label("num_values"),
        func.row_number().over(partition_by=count.name, order_by=order).label("place"),
    ).subquery()
    first = ranked.c.place <= MAX_VALUES
    columns = (ranked.c.name, ranked.c.value, ranked.c.number, ranked.c.num_values)
    return select(*columns).where(first).order_by(ranked.c.name, ranked.c.place).limit(MAX_LABELS)
