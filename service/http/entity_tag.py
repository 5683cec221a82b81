"""Entity tags: an answer that the client has already is not sent again."""

import hashlib
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

TAG_CHARACTERS = 40
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has this answer already: `If-None-Match` names its `ETag`"}
}
"""Response of an operation that answers with an entity tag, for its documentation."""


def answer_with_tag(request: Request, model: BaseModel) -> Response:
    """Answer with the JSON of `model` and a tag of its content; with 304 and no body where the client has that tag."""
    body = model.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:TAG_CHARACTERS]}"'
    if _is_named(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})


def _is_named(tag: str, names: str) -> bool:
    return any(name.strip().removeprefix("W/") in (tag, "*") for name in names.split(","))
