"""Endpoints for monitoring: /healthz and /readyz, which need no key and show no causes, and /metrics."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Response
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from service.access.senders import Viewer
from service.control.loop import ControlLoop
from service.database import Database
from service.database.failures import get_cause
from service.http.gate import HEALTH_PATH, METRICS_PATH
from service.http.limits import MONITORING
from service.http.problem_kinds import may_answer
from service.http.problems import ProblemError
from service.http.route import ApiRoute, runs_in
from service.observability.telemetry import Telemetry
from service.parts import depend_on
from service.schemas import Answer

log = structlog.get_logger(__name__)

router = APIRouter(tags=["health"], route_class=ApiRoute)
metrics_router = APIRouter(tags=["health"], route_class=ApiRoute)
"""Metrics for the holder of a key."""
open_metrics_router = APIRouter(route_class=ApiRoute)
"""Metrics for anybody, on the port for monitoring."""


class Health(Answer, frozen=True):
    """Answer of a process that runs."""

    status: str = "ok"
    """Always `ok`; other answers are problems."""


class Readiness(Health, frozen=True):
    """Answer of a process that is ready for requests."""

    leads: bool
    """Whether this process starts, watches and ends attempts; of the processes on one database one does."""


@dataclass
class ReadinessCheck:
    """Check whether the service is ready. What keeps it from that goes to the log, once, and to nobody else."""

    database: Database
    control: ControlLoop
    _last_obstacle: str | None = field(default=None, init=False)

    def run(self) -> Readiness:
        """Return the state of a service that is ready. Raises ProblemError if it is not."""
        obstacle = self._find_obstacle()
        if obstacle != self._last_obstacle:
            self._last_obstacle = obstacle
            if obstacle is None:
                log.info("ready_again")
            else:
                log.warning("not_ready", why=obstacle)
        if obstacle is not None:
            raise ProblemError("not-ready", "the service is not ready; its log says why (not_ready)")
        return Readiness(leads=self.control.leadership.is_held)

    def _find_obstacle(self) -> str | None:
        try:
            with self.database.read() as session:
                session.execute(text("SELECT 1"))
        except DBAPIError as error:
            return f"the database does not answer: {get_cause(error)}"
        if not self.control.is_alive:
            return "the control loop is not running"
        if self.control.faults.last_round_error:
            return f"the last round of the control loop failed: {self.control.faults.last_round_error}"
        leadership = self.control.leadership
        if leadership.is_stuck:
            return f"the control loop has made no progress for more than {leadership.stuck_seconds:g} s"
        return None


@router.get(HEALTH_PATH)
async def is_alive() -> Health:
    """Answer 200 as long as the process runs."""
    return Health()


@router.get("/readyz")
@may_answer("not-ready")
@runs_in(MONITORING)
def is_ready(check: Annotated[ReadinessCheck, depend_on(ReadinessCheck)]) -> Readiness:
    """Answer 200 where the database answers and the control loop gets on without failing; 503 otherwise."""
    return check.run()


Metrics = Annotated[Telemetry, depend_on(Telemetry)]
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@metrics_router.get(METRICS_PATH, responses=_TEXT)
@runs_in(MONITORING)
def get_metrics(_: Viewer, telemetry: Metrics) -> Response:
    """Return the metrics of the service in the text format of Prometheus."""
    return get_open_metrics(telemetry)


@open_metrics_router.get(METRICS_PATH)
@runs_in(MONITORING)
def get_open_metrics(telemetry: Metrics) -> Response:
    """Return the metrics of the service in the text format of Prometheus."""
    return Response(telemetry.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
