"""Reports and logs as the API receives and returns them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dlrm.record import EvaluationReport, StepReport
from service.reports.ingest import Stream
from service.store.models import Attempt

MetricKind = Literal["step", "evaluation"]
MAX_INT32 = 2**31 - 1
MAX_LINES = 1000
"""Largest number of lines of one push: those that a run sends at once. Each takes ten times its size while it is
stored."""


class NewReports(BaseModel):
    """Consecutive lines of one stream; the first one has the number `first_seq`."""

    model_config = ConfigDict(extra="forbid")

    rank: Annotated[int, Field(ge=0, le=MAX_INT32)]
    stream: Stream
    first_seq: Annotated[int, Field(ge=1, le=MAX_INT32)]
    lines: Annotated[list[str], Field(max_length=MAX_LINES)]


class Acknowledged(BaseModel):
    """Number of the last known line; the sender continues with the next one."""

    acknowledged_seq: int


class AttemptStart(BaseModel):
    """Step at which an attempt began to train."""

    attempt: int
    step: int
    """Batches consumed before the attempt. Reports of later steps by earlier attempts are void."""
    evaluated_step: int
    """Batches consumed before the last evaluation that counts. Later evaluations by earlier attempts are void."""

    @classmethod
    def from_attempt(cls, attempt: Attempt) -> "AttemptStart":
        """Build the schema from an attempt that has begun to train."""
        return cls(attempt=attempt.number, step=attempt.start_step or 0, evaluated_step=attempt.evaluated_step or 0)


class StepView(StepReport):
    """Report of one training step, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int


class EvaluationView(EvaluationReport):
    """Report of one evaluation, with the number of its attempt."""

    model_config = ConfigDict(extra="ignore")

    attempt: int


class MetricPage(BaseModel):
    """A page of step and evaluation reports, each with the number of its attempt.

    Answers are made from stored JSON, without their items being parsed: see `ReportService.read_metrics`.

    `starts` has every attempt that has begun to train; the reports that it makes void may be on an earlier page.
    """

    items: list[Annotated[StepView | EvaluationView, Field(discriminator="kind")]]
    starts: list[AttemptStart]
    next_cursor: str | None = None


class LogView(BaseModel):
    """A part of a log. `complete` is whether the attempt has ended and this part reaches the end of its log."""

    attempt: int
    rank: int | Literal["launch"]
    text: str
    next_offset: int
    complete: bool
