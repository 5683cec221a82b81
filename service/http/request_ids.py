"""Ids of requests: in the header of every answer, in problem documents and in every line that a request logs."""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

from service.ids import new_id

HEADER = "x-request-id"
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestIds:
    """ASGI middleware that gives every request an id: that of the client, where it is a short token, or a new one.

    It is kept in `request.state.request_id`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).get(HEADER, "")
            request_id = given if _TOKEN.fullmatch(given) else new_id("req")
            scope.setdefault("state", {})["request_id"] = request_id
            # A connection may hand the variables of its last request on.
            clear_contextvars()
            bind_contextvars(request_id=request_id)
        await self._app(scope, receive, send)


def get_request_id() -> str | None:
    """Return the id of the request that this code runs for; None if it runs for none."""
    return get_contextvars().get("request_id")
