"""The HTML pages. They hold no data: scripts of ours fetch it from the REST API, so a page needs no sign-in."""

from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.templating import Jinja2Templates

from dlrm.record import PART_WORDS

HERE = Path(__file__).parent
static_directory = HERE / "static"
"""Scripts and styles; served under /static."""

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
"""Nothing from elsewhere, nothing inline."""

_templates = Jinja2Templates(directory=HERE / "templates")
# What scripts get is in its own order, such as the parts of a step; Jinja would sort it.
_templates.env.policies["json.dumps_kwargs"] = {"sort_keys": False}

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get("/")
def jobs_page(request: Request) -> Response:
    """All jobs."""
    return _page(request, "jobs.html")


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> Response:
    """One job; its script says so where there is no such job."""
    return _page(request, "job.html", job_id=job_id, part_words=PART_WORDS)


@router.get("/signin")
def signin_page(request: Request) -> Response:
    """Where the sign-in link leads."""
    return _page(request, "signin.html")


def _page(request: Request, template: str, **context: object) -> Response:
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return _templates.TemplateResponse(request, template, context, headers=headers)
