"""Reports and logs on the wire."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.jobs.models import Attempt
from service.reports.ingest import Stream

MetricKind = Literal["step", "evaluation"]
MAX_INT32 = 2**31 - 1


class NewReports(BaseModel):
    """Lines of one stream, the first of which has number `first_seq`."""

    model_config = ConfigDict(extra="forbid")

    rank: Annotated[int, Field(ge=0, le=MAX_INT32)]
    stream: Stream
    first_seq: Annotated[int, Field(ge=1, le=MAX_INT32)]
    lines: Annotated[list[str], Field(max_length=10_000)]


class Acknowledged(BaseModel):
    """The last line that is known; pushing goes on behind it."""

    acknowledged_seq: int


class AttemptStart(BaseModel):
    """Where an attempt began to train."""

    attempt: int
    step: int
    """Batches consumed before it: later steps of earlier attempts are void."""
    evaluated_step: int
    """Batches consumed before the last evaluation that counts: later evaluations of earlier attempts are void."""

    @classmethod
    def of(cls, attempt: Attempt) -> "AttemptStart":
        """attempt: one that has begun to train."""
        return cls(attempt=attempt.number, step=attempt.start_step or 0, evaluated_step=attempt.evaluated_step or 0)


class MetricPage(BaseModel):
    """Step and evaluation reports, each with the number of its attempt.

    `starts`: of every attempt that has begun to train; what it makes void may stand on an earlier page.
    """

    items: list[dict[str, Any]]
    starts: list[AttemptStart]
    next_cursor: str | None = None


class LogView(BaseModel):
    """A part of a log. `complete`: the attempt has ended and this part goes to its end."""

    attempt: int
    rank: int | Literal["launch"]
    text: str
    next_offset: int
    complete: bool
