"""Reports and logs as the API receives and returns them."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from service.http.body import Body
from service.http.query import MAX_INT32
from service.reports.ingest import Stream
from service.schemas import Answer

MAX_LINES = 1000
"""Largest number of lines of one push: those that a run sends at once. Each takes ten times its size while it is
stored."""

EXAMPLE_REPORTS: dict[str, Any] = {
    "rank": 0,
    "stream": "events",
    "first_seq": 1,
    "lines": ['{"seq": 1, "time": 1790000000.0, "kind": "event", "name": "plan", "message": "2 tables on 1 rank"}'],
}


class NewReports(Body):
    """Consecutive lines of one stream; the first one has the number `first_seq`."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_REPORTS]})

    rank: Annotated[int, Field(ge=0, le=MAX_INT32)]
    """Rank that has written the lines."""
    stream: Stream
    """Stream of the lines."""
    first_seq: Annotated[int, Field(ge=1, le=MAX_INT32)]
    """Number of the first line within its stream, counted from 1."""
    lines: Annotated[list[str], Field(max_length=MAX_LINES)]
    """Lines in the order of their numbers, each one report as JSON."""


class Acknowledged(Answer, frozen=True):
    """Number of the last known line; the sender continues with the next one."""

    acknowledged_seq: int
    """Number of the last known line; 0 if none is known."""
