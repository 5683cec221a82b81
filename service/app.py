"""Assembly of the service: creates every part once and connects them to a FastAPI application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from anyio import to_thread
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from service.authentication import identify
from service.capacity.endpoints import router as capacity_router
from service.control.attempt_finalizer import AttemptFinalizer
from service.control.back_off import BackOff
from service.control.loop import ControlLoop, WakeUp
from service.control.reconciler import Reconciler
from service.control.round_errors import Faults
from service.control.scheduler import Scheduler
from service.control.starter import Starter
from service.dashboard import endpoints as dashboard
from service.database import Database
from service.database.migrate import migrate
from service.http.answer_headers import AnswerHeaders
from service.http.failures import Failures
from service.http.gate import Gate
from service.http.head import HeadAsGet
from service.http.health import router as health_router
from service.http.openapi import document_openapi
from service.http.paced_answers import PacedAnswers
from service.http.problems import add_problem_handlers
from service.http.rate_limits import AddressLimit, SenderLimit
from service.http.request_body import BodyGuard, BodyLimits
from service.http.request_guard import RequestGuard
from service.http.request_ids import RequestIds
from service.http.request_log import RequestLog
from service.http.suspects import Suspects
from service.jobs.endpoints import router as jobs_router
from service.jobs.repository import JobRepository
from service.jobs.service import JobService
from service.keys.endpoints import router as keys_router
from service.keys.service import KeyService
from service.launchers.local import LocalLauncher
from service.launchers.protocol import Capacity
from service.observability.telemetry import Telemetry
from service.plans.endpoints import router as plans_router
from service.plans.service import PlanService
from service.reports.endpoints import router as reports_router
from service.reports.service import ReportService
from service.services import Services
from service.settings import Settings
from service.state_directory import make_state_directory


def create_app(settings: Settings) -> FastAPI:
    """Create the ASGI application of the service; its control loop runs for as long as the application does.

    Migrates the database to the newest schema. A state directory may have only one application at a time, which
    `service.serve` ensures.
    """
    services = create_services(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        services.control.start()
        yield
        await to_thread.run_sync(services.control.stop)
        services.database.close()

    app = FastAPI(
        title="DLRM training service",
        version=version("dlrm-service"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A redirect would lead to the host that the request names.
        redirect_slashes=False,
    )
    app.state.services = services
    _add_middleware(app, services)
    add_problem_handlers(app, settings.state_directory)
    for router in (jobs_router, plans_router, reports_router, keys_router, capacity_router, health_router):
        app.include_router(router)
    app.include_router(dashboard.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=dashboard.static_directory), name="static")
    document_openapi(app)
    return app


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
    app.add_middleware(Gate, identify=identify, suspects=suspects)
    app.add_middleware(AddressLimit, requests_per_second=settings.requests_per_second_per_address, suspects=suspects)
    app.add_middleware(RequestGuard)
    app.add_middleware(Failures)
    app.add_middleware(AnswerHeaders)
    app.add_middleware(PacedAnswers)
    app.add_middleware(RequestLog, telemetry=services.telemetry)
    app.add_middleware(RequestIds)
    app.add_middleware(HeadAsGet)


def create_services(settings: Settings) -> Services:
    """Create all parts of the service, without starting any. Raises StateDirectoryError."""
    make_state_directory(settings.state_directory)
    make_state_directory(settings.runs_directory, "DLRM_RUNS_DIRECTORY")
    make_state_directory(settings.prepared_directory, "DLRM_PREPARED_DIRECTORY")
    database = Database(settings.database_url)
    migrate(database)
    telemetry = Telemetry()
    telemetry.count_jobs(lambda: _count_jobs_by_state(database))
    launcher = LocalLauncher(
        settings.trainer_python, Capacity(settings.num_cores, settings.memory_bytes, settings.num_gpus)
    )
    wake_up, faults = WakeUp(), Faults(telemetry)
    back_off = BackOff(settings.restart_delay_seconds, settings.max_restart_delay_seconds)
    starter, finalizer = Starter(database, launcher, settings.url), AttemptFinalizer(database, back_off)
    return Services(
        settings=settings,
        database=database,
        keys=KeyService(database),
        jobs=JobService(database, settings, launcher.capacity(), on_change=wake_up),
        plans=PlanService(database, settings, launcher.capacity()),
        reports=ReportService(database, launcher),
        launcher=launcher,
        control=ControlLoop(
            Reconciler(database, launcher, starter, finalizer, settings.grace_period_seconds),
            Scheduler(database, launcher, starter, finalizer, faults),
            wake_up,
            settings.reconcile_interval_seconds,
            telemetry,
            faults,
        ),
        telemetry=telemetry,
    )


def _count_jobs_by_state(database: Database) -> dict[str, int]:
    with database.read() as session:
        return JobRepository(session).count_by_state()
