"""Filters of the list of jobs, and their SQL conditions."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, or_, select

from service.ids import get_first_id
from service.store.models import Job, JobLabel
from service.store.states import JobState


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
    text: str | None = None
    """Part of the name, of the id, or of the value of a label of a job; capitals do not matter."""


MAX_CLOCK_STEP = timedelta(minutes=1)
"""Largest difference between the times of a job and of its id, which are read from the clock one after the other."""


def select_ids(chosen: JobFilter) -> Select[str]:
    """Select the ids of the jobs for which `chosen` holds, but for its states, and that are not being deleted."""
    query = select(Job.id).where(Job.deleting_at.is_(None))
    if chosen.name is not None:
        query = query.where(Job.name == chosen.name)
    if chosen.owner is not None:
        query = query.where(Job.owner == chosen.owner)
    # The order of ids is that of times, so that an index finds where the jobs of a time begin.
    if chosen.created_after is not None:
        first_id = get_first_id("job", chosen.created_after - MAX_CLOCK_STEP)
        query = query.where(Job.id >= first_id, Job.created_at >= chosen.created_after)
    if chosen.created_before is not None:
        first_id = get_first_id("job", chosen.created_before + MAX_CLOCK_STEP)
        query = query.where(Job.id < first_id, Job.created_at < chosen.created_before)
    for name, value in chosen.labels:
        query = query.where(Job.id.in_(select(JobLabel.job_id).where(JobLabel.name == name, JobLabel.value == value)))
    if chosen.text is not None:
        query = query.where(_contains(chosen.text))
    return query


def _contains(text: str) -> ColumnElement[bool]:
    has_value = select(JobLabel.name).where(JobLabel.job_id == Job.id, JobLabel.value.icontains(text, autoescape=True))
    return or_(Job.name.icontains(text, autoescape=True), Job.id.icontains(text, autoescape=True), has_value.exists())
