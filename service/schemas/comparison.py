"""Comparison of jobs."""

from typing import Any

from service.schemas.answers import Answer


class ComparedJob(Answer, frozen=True):
    """Job of a comparison."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    labels: dict[str, str]
    """Labels of the job, by name."""
    state: str
    """State of the job; only those that have succeeded have figures."""
    seed: int
    """Seed of the run, `run.seed`."""
    group: int
    """Number of its group, counted from 0; jobs of one group differ in their seeds alone."""


class ComparedSetting(Answer, frozen=True):
    """Setting in which groups differ."""

    field: str
    """Dotted path in the job document."""
    values: list[Any]
    """Values of the groups, in their order, with defaults filled in; None for a group without the field."""


class ComparedValue(Answer, frozen=True):
    """Figure of a group."""

    mean: float
    """Mean over the jobs of the group that have succeeded."""
    low: float | None = None
    """Lower end of the 95 % interval; None if nothing is known of the chance."""
    high: float | None = None
    """Upper end of the 95 % interval; None if nothing is known of the chance."""
    source: str = "none"
    """Source of the chance that the interval covers: `seeds`, `rows` (the choice of evaluation rows), or `none`."""
    num_jobs: int
    """Number of jobs in the mean."""


class ComparedFigure(Answer, frozen=True):
    """Figure by group."""

    name: str
    """Name of the figure, as in the metrics of a job; `seconds` count from the first start to the end."""
    values: list[ComparedValue | None]
    """Values of the groups, in their order; None for a group without the figure."""
    best: int | None = None
    """Number of the group with the best mean, which need not be significant; None with a single value."""


class Comparison(Answer, frozen=True):
    """Comparison of jobs."""

    jobs: list[ComparedJob]
    """Jobs in the order of the request."""
    settings: list[ComparedSetting]
    """Settings in which groups differ."""
    figures: list[ComparedFigure]
    """Final figures of the groups."""
