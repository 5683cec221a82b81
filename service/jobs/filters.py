"""Filters of the list of jobs."""

from dataclasses import dataclass

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
