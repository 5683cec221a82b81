"""Endpoints under /v1/ingest, and for the metrics of a job."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.access.senders import Viewer, get_bearer_token
from service.http.answers import need_slot
from service.http.limits import CURVES, INGEST
from service.http.paging import Cursor, parse_serial_cursor
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute, runs_in
from service.reports.ingest import Stream
from service.reports.repository import MetricQuery
from service.reports.schemas import MAX_INT32, Acknowledged, MetricKind, NewReports
from service.reports.service import Reports
from service.schemas import MetricPage

router = APIRouter(prefix="/v1", tags=["reports"], route_class=ApiRoute)

LargeAnswer = need_slot("slots for curves", total=4, share=2)
"""Dependency of endpoints whose answers may take some megabytes each."""
AttemptNumber = Annotated[int | None, Query(ge=1, le=MAX_INT32)]
Rank = Annotated[int, Query(ge=0, le=MAX_INT32)]


@router.post("/ingest/{attempt_id}")
@may_answer("conflict", "attempt-ended")
@runs_in(INGEST)
def push_reports(attempt_id: str, pushed: NewReports, request: Request, reports: Reports) -> Acknowledged:
    return Acknowledged(acknowledged_seq=reports.push(attempt_id, get_bearer_token(request), pushed))


@router.get("/ingest/{attempt_id}")
@may_answer("attempt-ended")
@runs_in(INGEST)
def get_acknowledged(attempt_id: str, rank: Rank, stream: Stream, request: Request, reports: Reports) -> Acknowledged:
    token = get_bearer_token(request)
    return Acknowledged(acknowledged_seq=reports.get_acknowledged_seq(attempt_id, token, rank, stream))


@router.get("/jobs/{job_id}/metrics", response_model=MetricPage, dependencies=[LargeAnswer])
@runs_in(CURVES)
def list_metrics(
    job_id: str,
    reports: Reports,
    principal: Viewer,
    kind: MetricKind | None = None,
    attempt: AttemptNumber = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    max_points: Annotated[
        int | None, Query(ge=1, le=10_000, description="all points, thinned evenly to this number")
    ] = None,
) -> Response:
    query = MetricQuery(kind, attempt, parse_serial_cursor(cursor), limit, max_points)
    return Response(reports.read_metrics(job_id, principal, query), media_type="application/json")
