"""Assembly of the service: creates every part once and connects them to a FastAPI application."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from anyio import to_thread
from fastapi import APIRouter, FastAPI

from dlrm.record.state_directory import make_state_directory
from service.access.data_roots import read_data_access
from service.advice.endpoints import router as advice_router
from service.advice.service import AdviceService
from service.audit.endpoints import router as audit_router
from service.audit.log import AuditLog
from service.authentication import identify, recall
from service.capacity.endpoints import router as capacity_router
from service.capacity.known import KnownCapacity, dump_capacities, measure_capacities
from service.capacity.use import CapacityUseService
from service.compare.endpoints import router as compare_router
from service.control.figures import Figures
from service.control.health import ReadinessCheck, metrics_router, open_metrics_router
from service.control.health import router as health_router
from service.control.loop import ControlLoop, make_control
from service.control.wake_up import WakeUp, make_wake_leader
from service.dashboard import endpoints as dashboard
from service.dashboard.static_files import VersionedFiles
from service.database import Database
from service.database.opening import open_database
from service.files.artifact_service import ArtifactService
from service.files.endpoints import router as files_router
from service.files.log_service import LogService
from service.http.answers import AnswerHeaders, CompressedAnswers, HeadAsGet, PacedAnswers
from service.http.gate import AddressLimit, Gate, SenderLimit
from service.http.limits import Suspects
from service.http.middleware import Failures
from service.http.openapi import document_openapi
from service.http.problems import add_problem_handlers
from service.http.request_body import BodyGuard, BodyLimits
from service.http.request_guard import RequestGuard
from service.http.request_log import RequestIds, RequestLog
from service.http.request_origin import parse_networks
from service.jobs.deletion import DeletionService
from service.jobs.document_check import router as documents_router
from service.jobs.document_schema import router as schema_router
from service.jobs.endpoints import facets_router, labels_router
from service.jobs.endpoints import router as jobs_router
from service.jobs.service import JobService
from service.keys.endpoints import router as keys_router
from service.keys.service import KeyService
from service.keys.sessions import SessionService
from service.keys.use_recorder import UseRecorder
from service.launchers.construction import make_launchers
from service.launchers.registry import Launchers
from service.leader.leadership import Leadership, find_service_id, make_leadership
from service.observability.telemetry import Telemetry
from service.parts import provide_parts
from service.plans.endpoints import router as plans_router
from service.plans.service import PlanService
from service.queue.endpoints import router as queue_router
from service.queue.service import QueueService
from service.quotas.endpoints import router as quotas_router
from service.quotas.service import QuotaService
from service.reports.curves import CurveService
from service.reports.endpoints import router as reports_router
from service.reports.service import ReportService
from service.retention.endpoints import router as retention_router
from service.retention.rules import RetentionRules
from service.retention.service import RetentionService
from service.schedules.endpoints import router as schedules_router
from service.schedules.runner import ScheduleRunner
from service.schedules.service import ScheduleService
from service.settings import Settings
from service.store.run_facts import RunFacts
from service.streams.construction import Streams, make_streams
from service.streams.endpoints import router as streams_router
from service.webhooks.endpoints import router as webhooks_router
from service.webhooks.sender import WebhookSender
from service.webhooks.service import WebhookService


@dataclass(frozen=True)
class Ground:
    """Parts of the service that its other parts are made of."""

    settings: Settings
    database: Database
    telemetry: Telemetry
    wake_up: WakeUp
    launchers: Launchers
    leadership: Leadership
    capacity: KnownCapacity
    facts: RunFacts
    audit: AuditLog
    key_uses: UseRecorder


@dataclass(frozen=True)
class Services(Ground):
    """Parts of the service. Each endpoint gets those that it names, see `service.parts`."""

    keys: KeyService
    sessions: SessionService
    jobs: JobService
    schedules: ScheduleService
    deletions: DeletionService
    retention: RetentionService
    plans: PlanService
    advice: AdviceService
    quotas: QuotaService
    capacity_use: CapacityUseService
    queue: QueueService
    reports: ReportService
    curves: CurveService
    artifacts: ArtifactService
    logs: LogService
    webhooks: WebhookService
    webhook_sender: WebhookSender
    control: ControlLoop
    readiness: ReadinessCheck
    streams: Streams


ROUTERS = (
    streams_router,
    jobs_router,
    labels_router,
    facets_router,
    schema_router,
    documents_router,
    advice_router,
    plans_router,
    reports_router,
    files_router,
    keys_router,
    quotas_router,
    audit_router,
    retention_router,
    capacity_router,
    queue_router,
    compare_router,
    schedules_router,
    webhooks_router,
    health_router,
    metrics_router,
    dashboard.router,
)
"""Routers in the order in which their paths are compared with a request's."""


def create_app(settings: Settings) -> FastAPI:
    """Create the ASGI application of the service; its control loop runs for as long as the application does.

    Migrates the database to the newest schema. A state directory may have only one application at a time, which
    `service.serve` ensures.
    """
    services = create_services(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        services.control.start()
        services.streams.relay.start()
        services.webhook_sender.start()
        yield
        services.webhook_sender.stop()
        services.streams.feed.close()
        await to_thread.run_sync(services.control.stop)
        await to_thread.run_sync(services.streams.relay.close)
        services.launchers.close()
        services.key_uses.close()
        services.database.close()

    app = FastAPI(
        title="DLRM training service",
        version=version("dlrm-service"),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would lead to the host that the request names.
        redirect_slashes=False,
    )
    app.state.services = services
    provide_parts(app, vars(services).values())
    _add_middleware(app, services)
    add_problem_handlers(app, settings.state_directory)
    _add_routes(app, ROUTERS)
    dashboard.show_missing_pages(app)
    app.mount("/static/{version}", VersionedFiles(), name="static")
    app.state.render_openapi = document_openapi(app)
    return app


def create_monitoring_app(services: Services) -> FastAPI:
    """Create the ASGI application of the port for monitoring: health, readiness and metrics, without a key."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    provide_parts(app, vars(services).values())
    app.add_middleware(Failures)
    app.add_middleware(AnswerHeaders)
    app.add_middleware(RequestLog, telemetry=services.telemetry)
    app.add_middleware(RequestIds)
    app.add_middleware(HeadAsGet)
    add_problem_handlers(app, services.settings.state_directory)
    _add_routes(app, (health_router, open_metrics_router))
    return app


def _add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of routers as they are; `include_router` would build all of them anew for each application."""
    app.router.routes += [route for router in routers for route in router.routes]


def _add_middleware(app: FastAPI, services: Services) -> None:
    """Add what every request passes before it reaches an endpoint; the last one added comes first."""
    settings = services.settings
    suspects = Suspects(settings.failures_per_minute)
    app.add_middleware(BodyGuard, limits=BodyLimits(max_bytes=settings.max_body_bytes))
    app.add_middleware(
        SenderLimit,
        requests_per_second=settings.requests_per_second,
        pushes_per_second=settings.pushes_per_second,
    )
    app.add_middleware(Gate, identify=identify, recall=recall, suspects=suspects)
    app.add_middleware(AddressLimit, requests_per_second=settings.requests_per_second_per_address, suspects=suspects)
    app.add_middleware(RequestGuard)
    app.add_middleware(Failures)
    app.add_middleware(CompressedAnswers)
    app.add_middleware(AnswerHeaders)
    app.add_middleware(PacedAnswers)
    app.add_middleware(RequestLog, telemetry=services.telemetry)
    app.add_middleware(RequestIds)
    app.add_middleware(HeadAsGet)


def create_services(settings: Settings) -> Services:
    """Create all parts of the service, without starting any.

    Raises StateDirectoryError, DatabaseUrlError, DatabaseUnusableError, KubernetesError and AccessTableError.
    """
    ground = _make_ground(settings)
    database, telemetry, launchers, leadership = ground.database, ground.telemetry, ground.launchers, ground.leadership
    audit, capacity, facts, key_uses = ground.audit, ground.capacity, ground.facts, ground.key_uses
    access = read_data_access(settings.access, launchers)
    wake_leader = make_wake_leader(ground.wake_up, database)
    jobs = JobService(database, settings, launchers, access, capacity, audit, facts, on_change=wake_leader)
    deletions = DeletionService(database, settings.runs_directory, audit, facts, on_change=wake_leader)
    rules = RetentionRules(settings.retention_days, settings.retention_jobs_per_owner, settings.retention_run_bytes)
    retention = RetentionService(database, rules, settings.retention_point_days, audit, facts, telemetry)
    control = make_control(
        settings,
        database,
        leadership,
        launchers,
        facts,
        telemetry,
        ground.wake_up,
        ScheduleRunner(database, leadership, jobs),
        upkeep=[retention.run, deletions.finish_deletions],
    )
    networks = parse_networks(settings.webhook_networks)
    plans = PlanService(database, settings, launchers, access, capacity, facts)
    return Services(
        **vars(ground),
        keys=KeyService(database, audit, key_uses),
        sessions=SessionService(database, audit, key_uses),
        jobs=jobs,
        schedules=ScheduleService(database, audit),
        deletions=deletions,
        retention=retention,
        plans=plans,
        advice=AdviceService(database, capacity, plans),
        quotas=QuotaService(database, audit),
        capacity_use=CapacityUseService(database, capacity),
        queue=QueueService(database, capacity),
        reports=ReportService(database, telemetry),
        curves=CurveService(database),
        artifacts=ArtifactService(database, facts),
        logs=LogService(database, facts),
        webhooks=WebhookService(database, audit, networks),
        webhook_sender=WebhookSender(
            database, networks, settings.reconcile_interval_seconds, lambda: leadership.is_held
        ),
        control=control,
        readiness=ReadinessCheck(database, control),
        streams=make_streams(database, jobs, facts, telemetry),
    )


def _make_ground(settings: Settings) -> Ground:
    make_state_directory(settings.state_directory)
    make_state_directory(settings.runs_directory, "DLRM_RUNS_DIRECTORY")
    make_state_directory(settings.prepared_directory, "DLRM_PREPARED_DIRECTORY")
    database, telemetry, wake_up = open_database(settings.database_url), Telemetry(), WakeUp()
    launchers = make_launchers(settings, find_service_id(database), on_change=wake_up)
    measure = partial(measure_capacities, launchers)
    leadership = make_leadership(
        database, settings.reconcile_interval_seconds, lambda: dump_capacities(measure()), on_notify=wake_up
    )
    telemetry.leads.set_function(lambda: leadership.is_held)
    capacity = KnownCapacity(database, measure)
    Figures(database, settings, capacity).register(telemetry)
    return Ground(
        settings,
        database,
        telemetry,
        wake_up,
        launchers,
        leadership,
        capacity,
        RunFacts(database, launchers),
        AuditLog(database, timedelta(days=settings.audit_retention_days)),
        UseRecorder(database),
    )
