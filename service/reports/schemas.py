"""Reports and logs on the wire."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class MetricPage(BaseModel):
    """Step and evaluation reports, each with the number of its attempt."""

    items: list[dict[str, Any]]
    next_cursor: str | None = None


class LogView(BaseModel):
    """A part of a log. `complete`: the attempt has ended and this part goes to its end."""

    attempt: int
    rank: int | Literal["launch"]
    text: str
    next_offset: int
    complete: bool
