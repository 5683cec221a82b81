"""Endpoint /v1/plans."""

from typing import Annotated, Any

from fastapi import APIRouter, Body

from service.access.senders import Submitter
from service.http.limits import PLANS
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute, runs_in
from service.jobs.endpoints import DESCRIPTION, JOB_DOCUMENT
from service.plans.schemas import PlanView
from service.plans.service import Plans

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=ApiRoute)


@router.post("", openapi_extra=JOB_DOCUMENT)
@may_answer("malformed-toml", "invalid-job", "cannot-plan", "planning-busy", "plan-timeout", "planning-failed")
@runs_in(PLANS)
def plan_job(
    document: Annotated[dict[str, Any], Body(description=DESCRIPTION)],
    plans: Plans,
    principal: Submitter,
) -> PlanView:
    """Plan the job of a document without storing it: its shards, memory, learning rates and time."""
    return plans.plan(document, principal)
