"""Endpoints for monitoring, /healthz, /readyz and /metrics. They need no API key, so they expose only counts."""

from typing import Annotated

from fastapi import APIRouter, Response
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.capacity.known import Capacities
from service.control.loop import ControlLoop
from service.database import Database
from service.http.limits import MONITORING
from service.http.problem_kinds import may_answer
from service.http.problems import ProblemError
from service.http.route import ApiRoute, runs_in
from service.observability.telemetry import Telemetry
from service.parts import depend_on
from service.schemas import Answer

Control = Annotated[ControlLoop, depend_on(ControlLoop)]

router = APIRouter(tags=["health"], route_class=ApiRoute)


class Health(Answer, frozen=True):
    """Answer of a process that runs."""

    status: str = "ok"
    """Always `ok`; other answers are problems."""


class Readiness(Health, frozen=True):
    """Answer of a process that is ready for requests."""

    leads: bool
    """Whether this process starts, watches and ends attempts; of the processes on one database one does."""


@router.get("/healthz")
async def is_alive() -> Health:
    """Answer 200 as long as the process runs."""
    return Health()


@router.get("/readyz")
@may_answer("not-ready")
@runs_in(MONITORING)
def is_ready(database: Annotated[Database, depend_on(Database)], control: Control) -> Readiness:
    """Answer 200 where the database answers and the control loop gets on without failing; 503 otherwise."""
    try:
        with database.read() as session:
            session.execute(text("SELECT 1"))
    except DBAPIError as error:
        raise ProblemError("not-ready", f"the database does not answer: {error.orig}") from error
    if not control.is_alive:
        raise ProblemError("not-ready", "the control loop is not running")
    if control.faults.last_round_error:
        raise ProblemError("not-ready", f"the last round of the control loop failed: {control.faults.last_round_error}")
    leadership = control.leadership
    if leadership.is_stuck:
        raise ProblemError(
            "not-ready", f"the control loop has made no progress for more than {leadership.stuck_seconds:g} s"
        )
    return Readiness(leads=leadership.is_held)


@router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
@runs_in(MONITORING)
def get_figures(
    control: Control, capacities: Capacities, telemetry: Annotated[Telemetry, depend_on(Telemetry)]
) -> Response:
    """Return the metrics of the service in the text format of Prometheus."""
    for launcher, free in capacities.read_free(capacities.read()).items():
        if free is not None:
            telemetry.set_free(launcher, free.num_cores, free.memory_bytes)
    telemetry.leads.set(control.leadership.is_held)
    return Response(telemetry.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
