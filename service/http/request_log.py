"""Record of every request: its id, its seconds for Prometheus, and a line in the log if that helps."""

import re
import time

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, clear_contextvars

from service.http.gate import INGEST_PREFIX, is_stream
from service.http.limits import TokenBuckets
from service.http.middleware import HttpMiddleware
from service.http.problems import METHODS, READ_METHODS
from service.http.request_origin import get_address
from service.ids import new_id
from service.observability.telemetry import Telemetry

REQUEST_ID = "x-request-id"
"""Header with the id of a request, in every answer."""
GONE = 499
"""Status that is recorded if the client has gone before it was answered."""
REFUSALS = frozenset({401, 429, 503})
"""Statuses that anybody can have, without credentials."""
MAX_PATH_CHARACTERS = 200
NO_ROUTE = "none"
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger(__name__)


class RequestIds(HttpMiddleware):
    """ASGI middleware that gives every request an id: the client's, if it is a short token, or a new one.

    It is kept in `request.state.request_id`.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _TOKEN.fullmatch(given) else new_id("req")
        scope.setdefault("state", {})["request_id"] = request_id
        begin_request(request_id)
        await self._app(scope, receive, send)


def begin_request(request_id: str) -> None:
    """Give all lines that this request logs its id."""
    # A connection may hand the variables of its last request on.
    clear_contextvars()
    bind_contextvars(request_id=request_id)


class RequestLog(HttpMiddleware):
    """ASGI middleware that counts every request by method, route and status, and logs changes, refusals and failures.

    The route is a template (`/v1/jobs/{job_id}`), not the path, so that ids create no time series of their own.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        super().__init__(app)
        self._telemetry = telemetry
        self._refusals = TokenBuckets(per_second=1.0, burst=100.0)
        """Lines about refusals, by network address: nobody fills the disk with them."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        start_seconds = time.perf_counter()
        status, num_bytes = GONE, 0
        begun_seconds: float | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status, num_bytes, begun_seconds
            if message["type"] == "http.response.start":
                status, begun_seconds = message["status"], time.perf_counter()
            num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            # A stream has answered once it begins.
            end_seconds = begun_seconds if begun_seconds and is_stream(scope["path"]) else time.perf_counter()
            self._record(scope, status, num_bytes, end_seconds - start_seconds)

    def _record(self, scope: Scope, status: int, num_bytes: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        # A name that somebody has made up would be a time series of its own.
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._telemetry.request_seconds.labels(method, route, str(status)).observe(seconds)
        if status < 400 and (method in READ_METHODS or scope["path"].startswith(INGEST_PREFIX)):
            # Reads and reports come all the time, such as those of whoever follows a job.
            return
        if status in REFUSALS and self._refusals.take(get_address(scope)):
            return
        details = {"path": scope["path"][:MAX_PATH_CHARACTERS]} if route == NO_ROUTE else {}
        log.info(
            "request",
            method=method,
            route=route,
            status=status,
            seconds=round(seconds, 4),
            bytes=num_bytes,
            actor=scope["state"].get("sender_name"),
            **details,
        )
