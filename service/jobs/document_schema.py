"""Schema of job documents, from which forms and other programs learn its fields."""

import hashlib
import json
from functools import cache
from typing import Any

from fastapi import APIRouter, Request, Response

from dlrm.config import JobSpec
from service.access.senders import Viewer
from service.http.answers import NOT_MODIFIED, TAG_CHARACTERS, has_tag
from service.http.request_body import JSON
from service.http.route import ApiRoute

router = APIRouter(prefix="/v1/schema", tags=["jobs"], route_class=ApiRoute)

_KEPT = "private, no-cache"
"""Cache-Control: browsers keep the answer, and ask each time whether it has changed."""


@router.get("", response_model=dict[str, Any], responses=NOT_MODIFIED)
def get_job_schema(request: Request, _: Viewer) -> Response:
    """Return the JSON Schema of a job document: each field with its meaning, bounds and default."""
    body, tag = _render()
    headers = {"ETag": f"W/{tag}", "Cache-Control": _KEPT}
    if has_tag(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


@cache
def _render() -> tuple[bytes, str]:
    """Render the schema once; return it with the tag of its content."""
    body = json.dumps(JobSpec.model_json_schema(), ensure_ascii=False, separators=(",", ":")).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:TAG_CHARACTERS]}"'
