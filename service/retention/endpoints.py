"""Endpoint that shows what retention would remove."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.access.senders import Admin
from service.http.limits import LISTS
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute, runs_in
from service.retention.rules import RetentionRules
from service.retention.service import Retention
from service.schemas import RetentionPreview

router = APIRouter(prefix="/v1", tags=["retention"], route_class=ApiRoute)


@router.get("/retention")
@may_answer("forbidden")
@runs_in(LISTS)
def preview_retention(
    retention: Retention,
    _: Admin,
    days: Annotated[
        float | None, Query(ge=0, le=36_500, description="days after its end for which a job stays")
    ] = None,
    jobs_per_owner: Annotated[int | None, Query(ge=0, le=2**31, description="ended jobs of an owner that stay")] = None,
    run_bytes: Annotated[
        int | None, Query(ge=0, le=2**62, description="bytes of the run directories of ended jobs that stay")
    ] = None,
) -> RetentionPreview:
    """Show what the rules of retention would remove now, and remove nothing.

    With parameters, these are the rules; without, the ones of the service's settings.
    """
    asked = RetentionRules(days, jobs_per_owner, run_bytes)
    return retention.preview(None if asked.are_off else asked)
