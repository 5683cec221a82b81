"""Endpoints of the HTML pages. Pages need no sign-in: they hold no data, which their scripts get from the REST API."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.templating import Jinja2Templates

from dlrm.config import PRESETS
from dlrm.record import BANNERS, PART_DESCRIPTIONS, YARDSTICKS
from service.parts import depend_on
from service.settings import Settings

HERE = Path(__file__).parent
static_directory = HERE / "static"
"""Directory of scripts and styles, served under /static."""

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

_EXAMPLE = """\
name = "first"

[data]
train = ["criteo/day_*.tsv"]
format = "criteo_tsv"

[resources]
memory = "8GiB"
"""

_templates = Jinja2Templates(directory=HERE / "templates")
# Keeps the order of keys in JSON for scripts, such as the parts of a step; Jinja would sort them.
_templates.env.policies["json.dumps_kwargs"] = {"sort_keys": False}

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/")
def jobs_page(request: Request) -> Response:
    """Return the page of all jobs."""
    return _page(request, "jobs.html")


@router.get("/new")
def new_job_page(request: Request, settings: Annotated[Settings, depend_on(Settings)]) -> Response:
    """Return the page that checks and submits a job document."""
    presets = {name: preset.summary for name, preset in PRESETS.items()}
    words = {"part_words": PART_DESCRIPTIONS, "presets": presets, "example": _EXAMPLE}
    return _page(request, "new.html", max_bytes=settings.max_body_bytes, **words)


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
    """Return the page of one job; its script shows an error if there is no such job."""
    words = {"part_words": PART_DESCRIPTIONS, "yardstick_titles": YARDSTICKS, "banners": BANNERS}
    return _page(request, "job.html", job_id=job_id, **words)


@router.get("/signin")
def signin_page(request: Request) -> Response:
    """Return the page that the sign-in link opens."""
    return _page(request, "signin.html")


def _page(request: Request, template: str, **context: object) -> Response:
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return _templates.TemplateResponse(request, template, context, headers=headers)
