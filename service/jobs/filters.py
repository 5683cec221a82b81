"""Filters of the list of jobs."""

from dataclasses import dataclass
from datetime import datetime

from service.jobs.states import JobState


@dataclass(frozen=True)
class JobFilter:
    """Conditions that all hold for the listed jobs; None and empty ones restrict nothing."""

    states: tuple[JobState, ...] = ()
    """States of which a job has one."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of labels of which a job has all."""
    name: str | None = None
    owner: str | None = None
    created_after: datetime | None = None
    """Time at which, or later than which, a job was submitted."""
    created_before: datetime | None = None
    """Time earlier than which a job was submitted."""
    text: str | None = None
    """Part of the name, of the id, or of the value of a label of a job; capitals do not matter."""
