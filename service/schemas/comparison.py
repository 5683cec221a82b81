"""Comparison of jobs."""

from typing import Any, Literal

from pydantic import Field

from service.schemas.answers import Answer
from service.schemas.jobs import BriefProgress

Better = Literal["higher", "lower", "nearer to 1"]
"""Values of a figure that are better."""


class ComparedJob(Answer, frozen=True):
    """Job of a comparison."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job."""
    owner: str = ""
    """Owner of the job."""
    labels: dict[str, str]
    """Labels of the job, by name."""
    state: str
    """State of the job; only those that have succeeded have figures."""
    seed: int
    """Seed of the run, `run.seed`."""
    group: int
    """Number of its group, counted from 0; jobs of one group differ in their seeds alone."""
    progress: BriefProgress = BriefProgress()
    """Progress of the last attempt, in short: what a job that still runs has so far."""


class ComparedSetting(Answer, frozen=True):
    """Setting in which groups differ."""

    field: str
    """Dotted path in the job document."""
    meaning: str = ""
    """Meaning of the field in a sentence; empty if it has none."""
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


class ComparedDifference(Answer, frozen=True):
    """Difference between a figure of a group and the same figure of the baseline, the first group.

    The intervals of all differences of a figure hold together with 95 %, by Bonferroni's inequality.
    """

    mean: float
    """Mean of the group less the mean of the baseline."""
    low: float | None = None
    """Lower end of the interval; None if nothing is known of the chance."""
    high: float | None = None
    """Upper end of the interval; None if nothing is known of the chance."""
    source: str = "none"
    """Source of the chance that the interval covers: `paired seeds` (both have the same ones), `seeds`, `rows` (the
    choice of evaluation rows), or `none`."""
    is_better: bool
    """Whether the mean is better than the baseline's, by however little."""
    is_certain: bool
    """Whether the interval leaves out 0, so that the difference is larger than its uncertainty."""


class ComparedFigure(Answer, frozen=True):
    """Figure by group."""

    name: str
    """Name of the figure, as in the metrics of a job; `seconds` count from the first start to the end."""
    better: Better | None = None
    """Values that are better; None if neither high nor low ones are."""
    values: list[ComparedValue | None]
    """Values of the groups, in their order; None for a group without the figure."""
    best: int | None = None
    """Number of the group with the best mean, which need not be significant; None with a single value."""
    differences: list[ComparedDifference | None] = Field(default=[])
    """Differences between each group and the baseline, the first one; None for the baseline, and if either lacks the
    figure."""


class Verdict(Answer, frozen=True):
    """Judgement of a comparison, in sentences. Groups are named by letters, A for the first one."""

    sentence: str
    """Sentence on the better group, with the difference and how it compares with its uncertainty."""
    best: int | None = None
    """Number of the group with the best AUC, or with the best log-loss if there is no AUC; None if nothing can be
    judged."""
    other: int | None = None
    """Number of the group that the best one is compared with: the baseline, or the second best; None if nothing can be
    judged."""
    is_certain: bool | None = None
    """Whether the difference is larger than its uncertainty; None if that is not known."""
    basis: str = ""
    """Interval of the difference and what it is made of; empty if nothing can be judged."""
    advice: str = ""
    """Advice on what would make the judgement certain; empty if nothing is left to do."""


class Comparison(Answer, frozen=True):
    """Comparison of jobs."""

    jobs: list[ComparedJob]
    """Jobs in the order of the request."""
    verdict: Verdict = Verdict(sentence="")
    """Judgement on which group is best."""
    settings: list[ComparedSetting]
    """Settings in which groups differ."""
    figures: list[ComparedFigure]
    """Final figures of the groups."""


class ResultMean(Answer, frozen=True):
    """Mean of a figure over jobs that differ in their seeds alone."""

    group: int
    """Number of the group of jobs, as in `groups` of the table."""
    mean: float
    """Mean over the jobs of the group that have succeeded, two or more."""
    low: float
    """Lower end of the 95 % interval by Student's t."""
    high: float
    """Upper end of the 95 % interval by Student's t."""
    num_jobs: int
    """Number of jobs in the mean."""


class ResultColumn(Answer, frozen=True):
    """One setting, label or figure of many jobs."""

    kind: Literal["setting", "label", "figure"]
    """Kind of the values: a field of the job document, a label, or a final figure."""
    name: str
    """Dotted path of the field, name of the label, or name of the figure as in the metrics of a job."""
    better: Better | None = None
    """Values of a figure that are better; None if neither high nor low ones are."""
    values: list[Any]
    """Values of the jobs, in their order; lists and objects as JSON text, long texts cut; None for a job without it."""
    means: list[ResultMean] = Field(default=[])
    """Means of a figure over the groups in which two or more jobs have it."""


class ResultTable(Answer, frozen=True):
    """Settings and final figures of many jobs, by columns."""

    ids: list[str]
    """Ids of the jobs, newest first."""
    names: list[str]
    """Names of the jobs."""
    owners: list[str]
    """Owners of the jobs."""
    states: list[str]
    """States of the jobs; only those that have succeeded have figures."""
    groups: list[int] = Field(default=[])
    """Number of the group of each job; jobs of one group differ in their seeds alone."""
    columns: list[ResultColumn]
    """Settings and labels that are not the same in all of these jobs, and figures."""
    num_equal_settings: int
    """Number of settings that are the same in all of these jobs, and left out."""
    num_left_out: int = 0
    """Number of differing settings and labels that are left out for the size of the answer."""
    has_more: bool = False
    """Whether further jobs match, older than these."""
