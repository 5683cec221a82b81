"""Endpoint /v1/documents: what is wrong with a job document, said at once and without a plan."""

from typing import Annotated, Any

from fastapi import APIRouter, Body

from service.access.senders import Submitter
from service.http.problem_kinds import may_answer
from service.http.problems import FieldProblem
from service.http.route import ApiRoute
from service.jobs.endpoints import DESCRIPTION, JOB_DOCUMENT, SUBMISSIONS
from service.jobs.service import Jobs
from service.schemas import Answer

router = APIRouter(prefix="/v1/documents", tags=["jobs"], route_class=ApiRoute)


class DocumentCheck(Answer, frozen=True):
    """Faults of a job document for which a submission would be refused now."""

    document: dict[str, Any] | None
    """Job document with defaults filled in; null if it is invalid by itself, whatever its files and the machine."""
    errors: list[FieldProblem]
    """Fields at fault, such as a path that is not there; empty if the document would be accepted."""


@router.post("", openapi_extra=JOB_DOCUMENT)
@may_answer("malformed-toml")
async def check_document(
    document: Annotated[dict[str, Any], Body(description=DESCRIPTION)], jobs: Jobs, principal: Submitter
) -> DocumentCheck:
    """Check a job document, in JSON or TOML, as a submission would be; nothing is stored or planned."""
    spec, errors = await SUBMISSIONS.run(principal.owner, jobs.check, document, principal)
    filled = None if spec is None else spec.model_dump(mode="json")
    return DocumentCheck(document=filled, errors=[FieldProblem(**error.as_dict()) for error in errors])
