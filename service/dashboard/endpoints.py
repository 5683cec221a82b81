"""Endpoints of the HTML pages. Pages need no sign-in: they hold no data, which their scripts get from the REST API."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.templating import Jinja2Templates
from starlette.types import Receive, Scope, Send

from dlrm.record import BANNERS, PART_DESCRIPTIONS, WARNINGS, YARDSTICKS
from service.dashboard.static_files import STATIC_PATH
from service.parts import depend_on
from service.reasons import ADVICE
from service.settings import Settings

HERE = Path(__file__).parent
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: only files of this service, and no inline scripts or styles."""

TABS = ("overview", "curves", "gradients", "logs", "events", "document")
"""Tabs of the page of a job; the first one has the address of the job itself."""

_templates = Jinja2Templates(directory=HERE / "templates")
# Keeps the order of keys in JSON for scripts, such as the parts of a step; Jinja would sort them.
_templates.env.policies["json.dumps_kwargs"] = {"sort_keys": False}
_templates.env.globals["static"] = STATIC_PATH  # pyright: ignore[reportUnknownMemberType]

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/")
def jobs_page(request: Request) -> Response:
    """Return the page of all jobs."""
    return _page(request, "jobs.html")


@router.get("/new")
def new_job_page(request: Request, settings: Annotated[Settings, depend_on(Settings)]) -> Response:
    """Return the page that checks and submits a job document."""
    return _page(request, "new.html", max_bytes=settings.max_body_bytes, part_words=PART_DESCRIPTIONS)


@router.get("/jobs")
def redirect_to_jobs() -> Response:
    """Send whoever shortens the address of a job to the page of all jobs."""
    return RedirectResponse("/")


@router.get("/docs")
def redirect_to_document() -> Response:
    """Send whoever looks for a page about the API, as many services have it, to its description."""
    return RedirectResponse("/openapi.json")


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> Response:
    """Return the first tab of the page of one job; its script shows an error if there is no such job."""
    return _job_page(request, job_id, "overview")


@router.get("/jobs/{job_id}/{tab}")
def job_tab(request: Request, job_id: str, tab: str) -> Response:
    """Return another tab of the page of one job."""
    return _job_page(request, job_id, tab) if tab in TABS[1:] else _missing_page(request)


@router.get("/compare")
def compare_page(request: Request) -> Response:
    """Return the page that compares jobs."""
    return _page(request, "compare.html")


@router.get("/capacity")
def capacity_page(request: Request) -> Response:
    """Return the page of what jobs may occupy, and what they do."""
    return _page(request, "capacity.html")


@router.get("/keys")
def keys_page(request: Request) -> Response:
    """Return the page of the keys, for admins."""
    return _page(request, "keys.html")


@router.get("/audit")
def audit_page(request: Request) -> Response:
    """Return the page of the audit log, for admins."""
    return _page(request, "audit.html")


@router.get("/signin")
def signin_page(request: Request) -> Response:
    """Return the page that the sign-in link opens."""
    return _page(request, "signin.html")


def _job_page(request: Request, job_id: str, tab: str) -> Response:
    words = {
        "part_words": PART_DESCRIPTIONS,
        "yardstick_titles": YARDSTICKS,
        "banners": BANNERS,
        "advice": ADVICE,
        "warnings": sorted(WARNINGS),
    }
    return _page(request, f"job/{tab}.html", job_id=job_id, tab=tab, tabs=TABS, **words)


def show_missing_pages(app: FastAPI) -> None:
    """Answer a browser that asks for a missing page with a page; requests of others are answered as before."""
    answer_others = app.router.default

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_for_page = scope["type"] == "http" and scope["method"] == "GET" and not scope["path"].startswith("/v1/")
        if is_for_page and "text/html" in (request := Request(scope)).headers.get("accept", ""):
            await _missing_page(request)(scope, receive, send)
        else:
            await answer_others(scope, receive, send)

    app.router.default = answer


def _missing_page(request: Request) -> Response:
    page = _page(request, "missing.html")
    page.status_code = 404
    return page


def _page(request: Request, template: str, **context: object) -> Response:
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    here = request.url.path
    return _templates.TemplateResponse(request, template, {"here": here, **context}, headers=headers)
