"""Filters of the list of jobs."""

from dataclasses import dataclass
from datetime import datetime

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
    finished_after: datetime | None = None
    """Earliest time at which a job ended."""
    finished_before: datetime | None = None
    """Time earlier than which a job ended."""
    text: str | None = None
    """Text to look for, see `service.store.job_texts`."""
