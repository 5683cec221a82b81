"""Endpoints under /v1/jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response

from dlrm.config import FieldError
from service.http.entity_tag import NOT_MODIFIED, answer_with_tag
from service.http.paging import Cursor, Page, parse_job_cursor, parse_serial_cursor
from service.http.problem_kinds import may_answer
from service.http.problems import invalid_request
from service.http.route import ApiRoute, runs_in
from service.http.threads import SUBMISSIONS
from service.jobs.schemas import AttemptList, CheckpointList, EventView, JobDetail, JobView
from service.jobs.service import Submission
from service.jobs.states import JobState
from service.keys.dependencies import Submitter, Viewer
from service.services import ServicesDependency

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ApiRoute)

IdempotencyKey = Annotated[
    str | None, Header(pattern=r"^[ -~]{1,255}$", description="1 to 255 printable ASCII characters")
]
JOB_DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobSpec"}}},
    }
}


@router.post(
    "",
    status_code=201,
    openapi_extra=JOB_DOCUMENT,
    responses={200: {"model": JobView, "description": "The job that the same request created before"}},
)
@may_answer("invalid-job", "cannot-fit", "idempotency-mismatch", "quota-exceeded")
@runs_in(SUBMISSIONS)
def submit_job(
    document: Annotated[dict[str, Any], Body()],
    services: ServicesDependency,
    principal: Submitter,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobView:
    job, is_new = services.jobs.submit(Submission(document, principal, idempotency_key))
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("")
def list_jobs(
    services: ServicesDependency,
    _: Viewer,
    state: Annotated[list[JobState] | None, Query(description="may be repeated; one must match")] = None,
    label: Annotated[list[str] | None, Query(description="name:value; may be repeated; all must match")] = None,
    name: Annotated[str | None, Query(max_length=63)] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[JobView]:
    labels = [_parse_label(text) for text in label or []]
    return services.jobs.list_page(
        states=state or [], labels=labels, name=name, cursor=parse_job_cursor(cursor), limit=limit
    )


@router.get("/{job_id}", response_model=JobDetail, responses=NOT_MODIFIED)
def get_job(job_id: str, request: Request, services: ServicesDependency, _: Viewer) -> Response:
    return answer_with_tag(request, services.jobs.get(job_id))


@router.post("/{job_id}/cancel", status_code=202)
@may_answer("conflict")
def cancel_job(job_id: str, services: ServicesDependency, principal: Submitter) -> JobView:
    return services.jobs.cancel(job_id, principal)


@router.post("/{job_id}/pause", status_code=202)
@may_answer("conflict")
def pause_job(job_id: str, services: ServicesDependency, principal: Submitter) -> JobView:
    return services.jobs.pause(job_id, principal)


@router.post("/{job_id}/resume", status_code=202)
@may_answer("conflict")
def resume_job(job_id: str, services: ServicesDependency, principal: Submitter) -> JobView:
    return services.jobs.resume(job_id, principal)


@router.get("/{job_id}/events")
def list_events(
    job_id: str,
    services: ServicesDependency,
    _: Viewer,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Page[EventView]:
    return services.jobs.list_events(job_id, parse_serial_cursor(cursor), limit)


@router.get("/{job_id}/attempts")
def list_attempts(job_id: str, services: ServicesDependency, _: Viewer) -> AttemptList:
    return AttemptList(items=services.jobs.list_attempts(job_id))


@router.get("/{job_id}/checkpoints")
def list_checkpoints(job_id: str, services: ServicesDependency, _: Viewer) -> CheckpointList:
    return CheckpointList(items=services.jobs.list_checkpoints(job_id))


def _parse_label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise invalid_request([FieldError("label", f"{text!r} has no value", "name:value, such as team:ads")])
    return name, value
