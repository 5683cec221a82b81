"""The parts of a running service, and the FastAPI dependency that gives endpoints access to them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

if TYPE_CHECKING:
    from service.audit.log import AuditLog
    from service.capacity.known import KnownCapacity
    from service.control.loop import ControlLoop
    from service.database import Database
    from service.jobs.deletion import DeletionService
    from service.jobs.service import JobService
    from service.keys.service import KeyService
    from service.keys.sessions import SessionService
    from service.keys.use_recorder import UseRecorder
    from service.launchers.registry import Launchers
    from service.observability.telemetry import Telemetry
    from service.plans.service import PlanService
    from service.quotas.service import QuotaService
    from service.reports.log_service import LogService
    from service.reports.service import ReportService
    from service.settings import Settings


@dataclass(frozen=True)
class Services:
    """Parts of the service that endpoints use; created once, in `service.app`."""

    settings: "Settings"
    database: "Database"
    audit: "AuditLog"
    key_uses: "UseRecorder"
    keys: "KeyService"
    sessions: "SessionService"
    jobs: "JobService"
    deletions: "DeletionService"
    capacity: "KnownCapacity"
    plans: "PlanService"
    quotas: "QuotaService"
    reports: "ReportService"
    logs: "LogService"
    launchers: "Launchers"
    control: "ControlLoop"
    telemetry: "Telemetry"


def get_services(request: Request) -> Services:
    """Return the parts of the service that answers `request`."""
    return cast("Services", request.app.state.services)


async def _depend_on_services(request: Request) -> Services:
    # Not a plain function: FastAPI would run that in a thread.
    return get_services(request)


ServicesDependency = Annotated[Services, Depends(_depend_on_services)]
"""Parameter type of an endpoint that needs the parts of the service."""
