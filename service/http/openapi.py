"""OpenAPI document of the service: FastAPI's own, extended by the schemas of job and problem documents."""

import json
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dlrm.config import JobSpec
from service.http.gate import INGEST_PREFIX, SESSION_COOKIE, is_guarded
from service.http.problem_kinds import make_examples
from service.http.problems import ProblemDocument

COMPONENT = "#/components/schemas/{model}"


def document_openapi(app: FastAPI) -> None:
    """Serve the extended OpenAPI document of `app`, which is built and rendered once, on the first request for it.

    Anybody may ask for it, and rendering takes some hundredths of a second, in which nobody else is answered.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _add_components(get_openapi(title=app.title, version=app.version, routes=app.routes))
        return app.openapi_schema

    @cache
    def render() -> bytes:
        return json.dumps(openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    async def send_document(_: Request) -> Response:
        return Response(render(), media_type="application/json")

    app.openapi = openapi
    app.add_route("/openapi.json", send_document, include_in_schema=False)


def _add_components(document: dict[str, Any]) -> dict[str, Any]:
    components: dict[str, Any] = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for model in (JobSpec, ProblemDocument):
        schema = model.model_json_schema(ref_template=COMPONENT)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    components["examples"] = make_examples()
    components["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key, dlrm_…; for /v1/ingest the attempt's token",
        },
        "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE, "description": "a browser session"},
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = _list_security(path)
    return document


def _list_security(path: str) -> list[dict[str, list[str]]]:
    """List the kinds of credentials for a request to `path`, which needs one; empty if it needs none."""
    if not is_guarded(path):
        return []
    return [{"key": []}] if path.startswith(INGEST_PREFIX) else [{"key": []}, {"session": []}]
