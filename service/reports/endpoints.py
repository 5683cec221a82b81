"""Endpoints under /v1/ingest, and for the metrics of a job."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.access.senders import Viewer, get_bearer_token
from service.http.answers import need_slot
from service.http.limits import CURVES, INGEST
from service.http.paging import MAX_SERIAL, Cursor
from service.http.problem_kinds import may_answer
from service.http.query import MAX_INT32, Rank
from service.http.route import ApiRoute, runs_in
from service.reports.attempt_ranges import MetricKind
from service.reports.curves import CurveQuery, CurveReader, parse_names
from service.reports.ingest import Stream
from service.reports.pages import MetricQuery, parse_place
from service.reports.schemas import Acknowledged, NewReports
from service.reports.service import Reports
from service.schemas import Curves, MetricPage

router = APIRouter(prefix="/v1", tags=["reports"], route_class=ApiRoute)

LargeAnswer = need_slot("slots for curves", total=4, share=2)
"""Dependency of endpoints whose answers may take some megabytes each."""
AttemptNumber = Annotated[int | None, Query(ge=1, le=MAX_INT32)]


@router.post("/ingest/{attempt_id}")
@may_answer("conflict", "attempt-ended")
@runs_in(INGEST)
def push_reports(attempt_id: str, pushed: NewReports, request: Request, reports: Reports) -> Acknowledged:
    """Store lines of a stream of one rank, and return the number of the last known one. Lines may come twice."""
    return Acknowledged(acknowledged_seq=reports.push(attempt_id, get_bearer_token(request), pushed))


@router.get("/ingest/{attempt_id}")
@may_answer("attempt-ended")
@runs_in(INGEST)
def get_acknowledged(attempt_id: str, rank: Rank, stream: Stream, request: Request, reports: Reports) -> Acknowledged:
    """Return the number of the last known line of a stream, after which a sender continues."""
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
) -> Response:
    """List the metrics of training steps and evaluations, oldest first; `starts` says which are void."""
    query = MetricQuery(kind, attempt, parse_place(cursor), limit)
    return Response(reports.read_metrics(job_id, principal, query), media_type="application/json")


@router.get("/jobs/{job_id}/curves", response_model=Curves, dependencies=[LargeAnswer])
@runs_in(CURVES)
def get_curves(
    job_id: str,
    curves: CurveReader,
    principal: Viewer,
    names: Annotated[str, Query(max_length=4096, description="names of curves, separated by commas")] = "loss,auc",
    resolution: Annotated[int, Query(ge=1, le=2000, description="largest number of points of an attempt")] = 500,
    since: Annotated[int, Query(ge=0, le=MAX_SERIAL, description="step after which points must end")] = 0,
    until: Annotated[
        int | None,
        Query(ge=1, le=MAX_SERIAL, description="step up to which points begin; `resolution` is then for this part"),
    ] = None,
    attempt: AttemptNumber = None,
) -> Response:
    """Return curves of a job: chosen numbers over the steps, with the extremes of each point."""
    query = CurveQuery(*parse_names(names), resolution, since, attempt, until)
    return Response(curves.read(job_id, principal, query), media_type="application/json")
