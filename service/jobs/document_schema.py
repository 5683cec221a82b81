"""Endpoint /v1/schema: the JSON schema of a job document."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import RootModel

from dlrm.config import JobSpec
from service.access.senders import Viewer
from service.http.answers import NOT_MODIFIED, answer_with_tag
from service.http.route import ApiRoute

router = APIRouter(prefix="/v1/schema", tags=["jobs"], route_class=ApiRoute)

KEPT = "private, max-age=300"
"""Cache-Control of the schema: it changes with the version of the service alone."""

_SCHEMA = RootModel[dict[str, Any]](JobSpec.model_json_schema())


@router.get("", response_model=dict[str, Any], responses=NOT_MODIFIED)
def get_job_schema(request: Request, _: Viewer) -> Response:
    """Return the JSON schema of a job document: its fields with their descriptions, defaults and bounds."""
    response = answer_with_tag(request, _SCHEMA)
    response.headers["Cache-Control"] = KEPT
    return response
