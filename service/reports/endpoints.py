"""Endpoints under /v1/ingest, and for the metrics and logs of a job."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from service.access.senders import Viewer, get_bearer_token
from service.http.answers import need_slot
from service.http.limits import CURVES, INGEST, LOGS
from service.http.paging import MAX_SERIAL, Cursor, parse_serial_cursor
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute, runs_in
from service.launchers.protocol import LogName, LogRange
from service.reports.ingest import Stream
from service.reports.repository import MetricQuery
from service.reports.schemas import MAX_INT32, Acknowledged, MetricKind, NewReports
from service.reports.service import Logs, Reports
from service.schemas import LogPart, MetricPage

router = APIRouter(prefix="/v1", tags=["reports"], route_class=ApiRoute)

LargeAnswer = need_slot("slots for curves", total=4, share=2)
"""Dependency of endpoints whose answers may take some megabytes each."""
LogAnswer = need_slot("slots for logs", total=4, share=2)
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


@router.get("/jobs/{job_id}/logs", dependencies=[LogAnswer])
@runs_in(LOGS)
def get_logs(
    job_id: str,
    logs: Logs,
    principal: Viewer,
    attempt: AttemptNumber = None,
    rank: Rank | Literal["launch"] = 0,
    node: Annotated[int, Query(ge=0, le=MAX_INT32, description="with rank=launch: number of the machine")] = 0,
    offset: Annotated[int, Query(ge=0, le=MAX_SERIAL)] = 0,
    limit_bytes: Annotated[int, Query(ge=4, le=2**20)] = 65_536,
    tail_lines: Annotated[int | None, Query(ge=1, le=100_000)] = None,
) -> LogPart:
    part = LogRange(offset, limit_bytes, tail_lines)
    return logs.read(job_id, principal, attempt, LogName(rank, node), part)
