"""Endpoint /v1/plans."""

from typing import Annotated, Any

from fastapi import APIRouter, Body

from service.access.senders import Submitter
from service.http.limits import PLANS
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute, runs_in
from service.jobs.endpoints import EXAMPLE_DOCUMENT, JOB_DOCUMENT
from service.plans.schemas import PlanView
from service.plans.service import Plans

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=ApiRoute)


@router.post("", openapi_extra=JOB_DOCUMENT)
@may_answer("malformed-toml", "invalid-job", "cannot-plan", "planning-busy", "plan-timeout", "planning-failed")
@runs_in(PLANS)
def plan_job(
    document: Annotated[dict[str, Any], Body(description=EXAMPLE_DOCUMENT)],
    plans: Plans,
    principal: Submitter,
) -> PlanView:
    return plans.plan(document, principal)
