"""Reports of a job as they came, page by page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Any, NamedTuple

from pydantic_core import to_json
from sqlalchemy.orm import Session

from service.http.paging import MAX_SERIAL, invalid_cursor
from service.reports.attempt_ranges import METRIC_KINDS, MetricKind
from service.reports.repository import ReportRepository

MAX_PAGE_BYTES = 2**22
"""Approximate size of the reports of one page, enough for ten thousand ordinary steps. A trainer may report 16 kB for
each step, and whoever reads many of them at once should not take the memory of the service."""
CHUNK_ROWS = 500
"""Rows that are read at once."""


class ReportPlace(NamedTuple):
    """Place of a report in the order of a job: an evaluation comes after the step before it."""

    attempt: int
    step: int
    kind: int
    """Number of the kind of the report, 0 for a step and 1 for an evaluation."""


@dataclass(frozen=True)
class MetricQuery:
    """Query for at most `limit` reports of a job after `after`."""

    kind: MetricKind | None = None
    attempt: int | None = None
    """Number of one attempt, all of whose reports count; None for the reports of all attempts that are not void."""
    after: ReportPlace | None = None
    limit: int = 1000


@dataclass(frozen=True)
class ReportPage:
    """Reports as JSON, separated by commas; `next_cursor` is None on the last page."""

    items: bytes
    next_cursor: str | None


def parse_place(cursor: str | None) -> ReportPlace | None:
    """Parse the cursor of a page of reports. Raises ProblemError (422) if it is invalid."""
    if cursor is None:
        return None
    match = re.fullmatch(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})", cursor)
    place = ReportPlace(*map(int, match.groups())) if match else None
    if place is None or max(place) > MAX_SERIAL:
        raise invalid_cursor(cursor)
    return place


def read_page(session: Session, job_id: str, query: MetricQuery) -> ReportPage:
    """Read the reports that a query selects, by attempt and step.

    There are fewer if they would be larger than MAX_PAGE_BYTES, but at least one.
    """
    reports = ReportRepository(session)
    kinds = METRIC_KINDS if query.kind is None else (query.kind,)
    items: list[bytes] = []
    num_bytes, last = 0, None
    for place, report in merge(*(_iterate(reports, job_id, kind, query) for kind in kinds), key=lambda pair: pair[0]):
        if last is not None and (len(items) == query.limit or num_bytes >= MAX_PAGE_BYTES):
            return ReportPage(b",".join(items), "-".join(map(str, last)))
        items.append(to_json(report))
        num_bytes, last = num_bytes + len(items[-1]), place
    return ReportPage(b",".join(items), None)


def _iterate(
    reports: ReportRepository, job_id: str, kind: MetricKind, query: MetricQuery
) -> Iterator[tuple[ReportPlace, dict[str, Any]]]:
    """Yield the reports of one kind after the place of a query, with their places."""
    number, after = METRIC_KINDS.index(kind), query.after or ReportPlace(0, 0, 0)
    for own in reports.list_ranges(job_id, kind, query.attempt):
        if own.attempt < after.attempt:
            continue
        first_step = 0 if own.attempt > after.attempt else after.step + (number <= after.kind)
        for row in reports.iterate(kind, job_id, own, first_step, min(query.limit + 1, CHUNK_ROWS)):
            if kind == "step":
                row["dropped"] = bool(row["dropped"])
            yield ReportPlace(own.attempt, row["step"], number), {"kind": kind, **row}
