"""Reports and logs as the API receives and returns them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from service.reports.ingest import Stream

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
