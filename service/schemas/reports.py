"""Reports of a job and its files: metrics, curves, logs and artifacts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from dlrm.record import EvaluationReport, StepReport
from service.schemas.answers import Answer, Page


class AttemptStart(Answer, frozen=True):
    """Point at which an attempt began to train. It repeats everything after that point."""

    attempt: int
    """Number of the attempt, counted from 1."""
    step: int
    """Batches consumed before the attempt; training steps of earlier attempts after this one are void."""
    evaluated_step: int
    """Step of the last evaluation that still counts; evaluations of earlier attempts after it are void."""


class StepMetric(StepReport):
    """Metrics of one training step, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int
    """Number of the attempt that reported it, counted from 1."""


class EvaluationMetric(EvaluationReport):
    """Metrics of one evaluation, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int
    """Number of the attempt that reported it, counted from 1."""


Metric = Annotated[StepMetric | EvaluationMetric, Field(discriminator="kind")]


class MetricPage(Page[Metric], frozen=True, use_attribute_docstrings=True):
    """One page of metrics, with the starts of all attempts of the job.

    A start may make metrics of earlier pages void.
    """

    starts: list[AttemptStart] = Field(default=[])
    """Starts of all attempts of the job, oldest first."""
    are_steps_removed: bool = False
    """Whether retention has removed the reports of steps, so that the job's curves alone are left of them."""


class Curve(Answer, frozen=True):
    """Values of one name, one for each point; null for a value that is not known or was not finite."""

    last: list[float | None] = Field(default=[])
    """Value at the last step of each point."""
    mean: list[float | None] | None = None
    """Mean over the reported steps of each point; absent, as the next two, if each point is one step."""
    min: list[float | None] | None = None
    """Smallest value of each point."""
    max: list[float | None] | None = None
    """Largest value of each point."""


class CurvePoints(Answer, frozen=True):
    """Curves over the same points. A later answer with the same `steps_per_point` can be appended to this one."""

    steps_per_point: int
    """Steps that a point stands for, a power of two; a point at which an attempt begins or ends has fewer."""
    steps: list[int] = Field(default=[])
    """Last step of each point."""
    curves: dict[str, Curve] = Field(default={})
    """Curves by name."""


class Curves(Answer, frozen=True):
    """Curves of a job, without what later attempts have repeated."""

    training: CurvePoints | None = None
    """Numbers of training steps; null if none was asked for."""
    evaluation: CurvePoints | None = None
    """Numbers of evaluations; null if none was asked for."""
    starts: list[AttemptStart] = Field(default=[])
    """Starts of all attempts of the job, oldest first."""


class LogPart(Answer, frozen=True):
    """Part of one log file."""

    attempt: int | None = None
    """Number of the attempt; None if the job has none yet."""
    rank: int | Literal["launch"]
    """Rank whose log it is, or `launch` for the launch process."""
    text: str
    """Text of this part, in whole characters."""
    offset: int = 0
    """Offset in bytes of the beginning of this part."""
    next_offset: int
    """Value of `offset` that continues after this part, in bytes."""
    complete: bool
    """Whether the attempt has ended and the log was read to its end."""


class LogMatch(Answer, frozen=True):
    """Line of a log in which a text was found."""

    offset: int
    """Offset in bytes of the line in its log, from which `GET …/logs` reads on."""
    text: str
    """The line without its end, cut after some thousand characters."""


class LogMatches(Answer, frozen=True):
    """Lines of a part of a log that contain a text, in their order."""

    attempt: int | None = None
    """Number of the attempt, counted from 1."""
    rank: int | Literal["launch"]
    """Rank whose log it is, or `launch`."""
    items: list[LogMatch]
    """Lines that contain the text."""
    next_offset: int
    """Offset in bytes from which to search on."""
    complete: bool
    """Whether the attempt has ended and the log was searched to its end."""


class Artifact(Answer, frozen=True):
    """Artifact of a run, such as its model, a checkpoint or a log; or a file of one."""

    name: str
    """Path in the run directory, by which it is downloaded."""
    kind: str
    """One of `model`, `checkpoint`, `log`, `profile`, `scores`, `trackers`, `outcome`, `document`."""
    is_directory: bool = False
    """Whether it has several files, which are downloaded as one tar archive, or one by one."""
    num_bytes: int | None = None
    """Bytes of its files; None if the service does not see them."""
    modified_at: datetime | None = None
    """Time of the last change; None if the service does not see it."""
    place: str | None = None
    """Path or URI of what the service does not see, and cannot send; None if it can be downloaded."""
