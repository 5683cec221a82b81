"""Endpoint /v1/jobs/{id}/advice."""

from fastapi import APIRouter, Request, Response

from service.access.senders import Viewer
from service.advice.service import Advisor
from service.http.answers import NOT_MODIFIED, answer_with_tag
from service.http.route import ApiRoute
from service.schemas import JobAdvice

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=ApiRoute)


@router.get("/{job_id}/advice", response_model=JobAdvice, responses=NOT_MODIFIED)
def get_advice(job_id: str, request: Request, advisor: Advisor, principal: Viewer) -> Response:
    """Advise on what to change in a job, with the figures behind it: its batch, speed, quality, plan and resources."""
    return answer_with_tag(request, advisor.advise(job_id, principal))
