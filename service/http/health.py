"""Endpoints for monitoring, /healthz, /readyz and /metrics. They need no API key, so they expose only counts."""

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.capacity.free import compute_free_capacities
from service.http.limits import MONITORING
from service.http.problem_kinds import may_answer
from service.http.problems import ProblemError
from service.http.route import ApiRoute, runs_in
from service.services import ServicesDependency

router = APIRouter(tags=["health"], route_class=ApiRoute)


class Health(BaseModel):
    status: str = "ok"


class Readiness(Health):
    leads: bool
    """Whether this process starts, watches and ends attempts; of the processes on one database one does."""


@router.get("/healthz")
async def is_alive() -> Health:
    """Answer 200 as long as the process runs."""
    return Health()


@router.get("/readyz")
@may_answer("not-ready")
@runs_in(MONITORING)
def is_ready(services: ServicesDependency) -> Readiness:
    """Answer 200 where the database answers and the control loop gets on without failing; 503 otherwise."""
    try:
        with services.database.read() as session:
            session.execute(text("SELECT 1"))
    except DBAPIError as error:
        raise _not_ready(f"the database does not answer: {error.orig}") from error
    if not services.control.is_alive:
        raise _not_ready("the control loop is not running")
    if services.control.faults.last_round_error:
        raise _not_ready(f"the last round of the control loop failed: {services.control.faults.last_round_error}")
    leadership = services.control.leadership
    if leadership.is_stuck:
        raise _not_ready(f"the control loop has made no progress for more than {leadership.stuck_seconds:g} s")
    return Readiness(leads=leadership.is_held)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
@runs_in(MONITORING)
def get_figures(services: ServicesDependency) -> Response:
    """Return the metrics of the service in the text format of Prometheus."""
    for launcher, free in compute_free_capacities(services.database, services.capacity.read()).items():
        if free is not None:
            services.telemetry.set_free(launcher, free)
    services.telemetry.leads.set(services.control.leadership.is_held)
    return Response(services.telemetry.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _not_ready(detail: str) -> ProblemError:
    return ProblemError("not-ready", detail)
