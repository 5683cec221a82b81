"""Schema of job documents, from which forms and other programs learn its fields."""

import json
from functools import cache
from typing import Any

from fastapi import APIRouter, Request, Response

from service import job_schema
from service.access.senders import Viewer
from service.http.answers import NOT_MODIFIED, answer_unless_known, make_tag
from service.http.route import ApiRoute

router = APIRouter(prefix="/v1/schema", tags=["jobs"], route_class=ApiRoute)

_KEPT = "private, no-cache"
"""Cache-Control: browsers keep the answer, and ask each time whether it has changed."""


@router.get("", response_model=dict[str, Any], responses=NOT_MODIFIED)
def get_job_schema(request: Request, _: Viewer) -> Response:
    """Return the JSON Schema of a job document: each field with its meaning, bounds and default."""
    return answer_unless_known(request, *_render(), _KEPT)


@cache
def _render() -> tuple[bytes, str]:
    """Render the schema once; return it with the tag of its content."""
    body = json.dumps(job_schema.get_job_schema(), ensure_ascii=False, separators=(",", ":")).encode()
    return body, make_tag(body)
