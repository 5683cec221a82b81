"""Endpoints under /v1/jobs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Header, Query, Request, Response
from pydantic import StringConstraints

from service.access.senders import Submitter, Viewer
from service.http.answers import NOT_MODIFIED, answer_with_tag, need_slot
from service.http.limits import LISTS, Turns
from service.http.paging import Cursor, Page, parse_id_cursor, parse_serial_cursor
from service.http.problem_kinds import may_answer
from service.http.query import parse_label
from service.http.request_body import JSON, TOML
from service.http.route import ApiRoute, runs_in
from service.jobs import actions
from service.jobs.deletion import Deletions
from service.jobs.filters import ChosenJobs
from service.jobs.schemas import AttemptView, CheckpointView, DeletedJobView, EventView, JobChanges, JobDetail, JobView
from service.jobs.service import EventQuery, Jobs, Submission
from service.jobs.short_document import shorten_document
from service.schemas import Facets, LabelCount, ShortDocument
from service.store.models import MAX_EVENT_NAME_LENGTH

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ApiRoute)
labels_router = APIRouter(prefix="/v1/labels", tags=["jobs"], route_class=ApiRoute)
facets_router = APIRouter(prefix="/v1/facets", tags=["jobs"], route_class=ApiRoute)

SUBMISSIONS = Turns("submissions", 2, share=1, max_waiting=200, waiting_share=50)
"""Threads that check job documents: a document may name many files."""
LongList = need_slot("slots for lists", total=8, share=4)
"""Dependency of endpoints whose answers may take some hundred kilobytes each, and much more while they are made."""
IdempotencyKey = Annotated[
    str | None, Header(pattern=r"^[ -~]{1,255}$", description="1 to 255 printable ASCII characters")
]
EventName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_EVENT_NAME_LENGTH)]
DESCRIPTION = 'a job document, such as {"data": {"train": ["day_0.tsv"]}}'
_EXAMPLE = {
    "name": "clicks",
    "labels": {"team": "ads"},
    "data": {"train": ["day_*.tsv"]},
    "batch": {"global_size": 16384},
    "resources": {"workers_per_node": 2, "memory": 2 * 2**30},
}
_EXAMPLE_TOML = """\
name = "clicks"
labels = { team = "ads" }

[data]
train = ["day_*.tsv"]

[batch]
global_size = 16384

[resources]
workers_per_node = 2
memory = "2GiB"
"""
_SCHEMA = {"$ref": "#/components/schemas/JobSpec"}
JOB_DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": _SCHEMA, "example": _EXAMPLE},
            TOML: {"schema": _SCHEMA, "example": _EXAMPLE_TOML},
        },
    }
}
"""Documentation of a body that is a job document."""

AS_TOML: dict[int | str, dict[str, Any]] = {
    200: {"content": {TOML: {"schema": {"type": "string"}, "example": _EXAMPLE_TOML}}}
}
"""Response of an operation that also answers with a job document in TOML, for its documentation."""
CREATED_BEFORE: dict[int | str, dict[str, Any]] = {
    200: {"model": JobDetail, "description": "The job that the same request created before"}
}


@router.post("", status_code=201, openapi_extra=JOB_DOCUMENT, responses=CREATED_BEFORE)
@may_answer("malformed-toml", "invalid-job", "cannot-fit", "idempotency-mismatch", "quota-exceeded")
async def submit_job(
    document: Annotated[dict[str, Any], Body(description=DESCRIPTION)],
    jobs: Jobs,
    principal: Submitter,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Submit a job document, in JSON or TOML; it is checked and queued.

    With `Idempotency-Key`, the same document returns the same job for 24 hours, with 200.
    """
    submission = Submission(document, principal, idempotency_key)
    return _announce(response, *await SUBMISSIONS.run(principal.owner, jobs.submit, submission))


@router.get("", dependencies=[LongList], response_model=Page[JobView])
@runs_in(LISTS)
def list_jobs(
    jobs: Jobs,
    principal: Viewer,
    chosen: ChosenJobs,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """List the jobs that the sender may know of, newest first: the jobs of its owner, and all for an admin."""
    page = jobs.list_page(chosen, principal, cursor=parse_id_cursor(cursor, "job"), limit=limit)
    return Response(page, media_type=JSON)


@labels_router.get("", dependencies=[LongList])
@runs_in(LISTS)
def list_labels(
    jobs: Jobs,
    principal: Viewer,
    name: Annotated[str | None, Query(max_length=63, description="only values of this label")] = None,
    cursor: Annotated[str | None, Query(max_length=127, description="`next_cursor` of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Page[LabelCount]:
    """List the labels of jobs by name and value, each with its number of jobs."""
    after = None if cursor is None else parse_label(cursor, "cursor")
    return jobs.list_labels(name, principal, after=after, limit=limit)


@facets_router.get("", dependencies=[LongList])
@runs_in(LISTS)
def count_facets(chosen: ChosenJobs, jobs: Jobs, principal: Viewer) -> Facets:
    """Count jobs by state, owner and label, so that one sees to what a list can be narrowed."""
    return jobs.count_facets(chosen, principal)


@router.get("/{job_id}", response_model=JobDetail, responses=NOT_MODIFIED)
def get_job(job_id: str, request: Request, jobs: Jobs, principal: Viewer) -> Response:
    """Return a job with its document, derived numbers, and place in the queue."""
    return answer_with_tag(request, jobs.get(job_id, principal))


@router.get("/{job_id}/document", response_model=ShortDocument, responses=AS_TOML)
@may_answer("invalid-job")
@runs_in(SUBMISSIONS)
def get_document(job_id: str, request: Request, jobs: Jobs, principal: Viewer) -> Response:
    """Return the shortest document that makes the same job again, and how it differs from the defaults.

    With `Accept: application/toml` the answer is the document alone, as TOML.
    """
    short = shorten_document(jobs.get(job_id, principal).spec)
    if TOML in request.headers.get("accept", ""):
        return Response(short.toml, media_type=TOML)
    return Response(short.model_dump_json(), media_type=JSON)


@router.patch("/{job_id}")
@may_answer("conflict")
def edit_job(job_id: str, changes: JobChanges, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Change labels of a job and, while it has not ended, its priority. An event says what was changed."""
    return jobs.edit(job_id, principal, changes)


@router.post("/{job_id}/cancel", status_code=202)
@may_answer("conflict")
def cancel_job(job_id: str, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Cancel a job: at once if it waits, else after the step and, if time allows, a checkpoint."""
    return jobs.change(job_id, principal, actions.cancel)


@router.post("/{job_id}/pause", status_code=202)
@may_answer("conflict")
def pause_job(job_id: str, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Stop a running job after a checkpoint, from which it continues once it is resumed."""
    return jobs.change(job_id, principal, actions.pause)


@router.post("/{job_id}/resume", status_code=202)
@may_answer("conflict")
def resume_job(job_id: str, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Queue a paused job again."""
    return jobs.change(job_id, principal, actions.resume)


@router.post("/{job_id}/hold", status_code=202)
@may_answer("conflict")
def hold_job(job_id: str, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Keep a queued job from starting until it is released."""
    return jobs.change(job_id, principal, actions.hold)


@router.post("/{job_id}/release", status_code=202)
@may_answer("conflict")
def release_job(job_id: str, jobs: Jobs, principal: Submitter) -> JobDetail:
    """Let a held job start when its turn comes."""
    return jobs.change(job_id, principal, actions.release)


@router.post("/{job_id}/restart", status_code=201, responses=CREATED_BEFORE)
@may_answer("invalid-job", "cannot-fit", "conflict", "idempotency-mismatch", "quota-exceeded")
async def restart_job(
    job_id: str,
    jobs: Jobs,
    principal: Submitter,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Create a job with the document of one that has ended; its paths are looked for anew."""
    restart = jobs.restart
    return _announce(response, *await SUBMISSIONS.run(principal.owner, restart, job_id, principal, idempotency_key))


@router.delete("/{job_id}", status_code=202)
@may_answer("conflict")
def delete_job(job_id: str, deletions: Deletions, principal: Submitter) -> DeletedJobView:
    """Delete a job that has ended; its files, events and metrics are removed soon after."""
    return deletions.delete(job_id, principal)


@router.get("/{job_id}/events", dependencies=[LongList], response_model=Page[EventView])
@runs_in(LISTS)
def list_events(
    job_id: str,
    jobs: Jobs,
    principal: Viewer,
    name: Annotated[
        list[EventName] | None,
        Query(description="may be repeated; one must match; `state`: changes of state"),
    ] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="asc: oldest first; desc: newest first")] = "asc",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """List the events of a job: changes of state and actions, and reports of ranks."""
    chosen = EventQuery(parse_serial_cursor(cursor), limit, tuple(name or ()), is_newest_first=order == "desc")
    page = jobs.list_events(job_id, principal, chosen)
    return Response(page.model_dump_json(), media_type=JSON)


@router.get("/{job_id}/attempts")
def list_attempts(job_id: str, jobs: Jobs, principal: Viewer) -> Page[AttemptView]:
    """List the attempts of a job, oldest first."""
    return Page(items=jobs.list_attempts(job_id, principal))


@router.get("/{job_id}/checkpoints")
def list_checkpoints(job_id: str, jobs: Jobs, principal: Viewer) -> Page[CheckpointView]:
    """List the complete checkpoints of a job, newest first."""
    return Page(items=jobs.list_checkpoints(job_id, principal))


def _announce(response: Response, job: JobDetail, is_new: bool) -> JobDetail:
    """Set the status and the headers of the answer to a request that creates a job, and return the job."""
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
