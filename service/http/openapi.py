"""OpenAPI document of the service: FastAPI's own, extended by the schemas of job and problem documents."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dlrm.config import JobSpec
from service.http.gate import INGEST_PREFIX, SESSION_COOKIE, is_guarded
from service.http.problem_kinds import make_examples
from service.http.problems import ProblemDocument

COMPONENT = "#/components/schemas/{model}"


def document_openapi(app: FastAPI) -> Callable[[], bytes]:
    """Serve the extended OpenAPI document of `app`, and return the function that renders it, once.

    Rendering takes some tenths of a second: a service calls the function once it is ready, before anybody asks.
    """
    rendered: list[bytes] = []
    lock = threading.Lock()

    def openapi() -> dict[str, Any]:
        return _extend(get_openapi(title=app.title, version=app.version, routes=app.routes))

    def render() -> bytes:
        with lock:
            if not rendered:
                rendered.append(json.dumps(openapi(), ensure_ascii=False, separators=(",", ":")).encode())
        return rendered[0]

    async def send_document(_: Request) -> Response:
        body = rendered[0] if rendered else await to_thread.run_sync(render)
        return Response(body, media_type="application/json")

    app.openapi = openapi
    app.add_route("/openapi.json", send_document, include_in_schema=False)
    return render


def _extend(document: dict[str, Any]) -> dict[str, Any]:
    """Add components, credentials and examples to the document of the framework."""
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
            for content in operation.get("requestBody", {}).get("content", {}).values():
                model = schemas.get(content["schema"].get("$ref", "").rpartition("/")[2], {})
                if "example" not in content and "examples" in model:
                    content["example"] = model["examples"][0]
    for described in _list_described(document):
        # Docstrings have the word of Python.
        described["description"] = re.sub(r"\bNone\b", "null", described["description"])
    return document


def _list_described(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document that has a description."""
    if isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        if isinstance(members.get("description"), str):
            yield members
        for member in members.values():
            yield from _list_described(member)
    elif isinstance(node, list):
        for member in cast("list[Any]", node):
            yield from _list_described(member)


def _list_security(path: str) -> list[dict[str, list[str]]]:
    """List the kinds of credentials for a request to `path`, which needs one; empty if it needs none."""
    if not is_guarded(path):
        return []
    return [{"key": []}] if path.startswith(INGEST_PREFIX) else [{"key": []}, {"session": []}]
