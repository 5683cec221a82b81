"""OpenAPI document of the service: FastAPI's own, extended by the schemas of job and problem documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from dlrm.config import JobSpec
from service.http.problems import MEDIA_TYPE, ProblemDocument

COMPONENT = "#/components/schemas/{model}"
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Problem document: what went wrong",
        "content": {MEDIA_TYPE: {"schema": {"$ref": COMPONENT.format(model="ProblemDocument")}}},
    }
}


def document_openapi(app: FastAPI) -> None:
    """Replace the OpenAPI document of `app` by the extended one, which is built once, on the first request for it."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _add_components(get_openapi(title=app.title, version=app.version, routes=app.routes))
        return app.openapi_schema

    app.openapi = openapi


def _add_components(document: dict[str, Any]) -> dict[str, Any]:
    components: dict[str, Any] = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for model in (JobSpec, ProblemDocument):
        schema = model.model_json_schema(ref_template=COMPONENT)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key, dlrm_…; for /v1/ingest the attempt's token",
        }
    }
    document["security"] = [{"key": []}]
    return document
