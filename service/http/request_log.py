"""Record of every request: its seconds for Prometheus, and a line in the log where that helps."""

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.addresses import get_address
from service.http.problems import METHODS
from service.http.token_buckets import TokenBuckets
from service.observability.telemetry import Telemetry

GONE = 499
"""Status that is recorded where the client has gone before it was answered."""
QUIET_PREFIXES = ("/healthz", "/readyz", "/metrics", "/static/", "/v1/ingest/")
"""Paths of requests that come all the time: they are logged only where they are refused or fail."""
REFUSALS = frozenset({401, 429, 503})
"""Statuses that anybody can have, without credentials."""
MAX_PATH_CHARACTERS = 200
NO_ROUTE = "none"

log = structlog.get_logger(__name__)


class RequestLog:
    """ASGI middleware that records every request by method, route and status.

    The route is a template (`/v1/jobs/{job_id}`), not the path, so that ids create no time series of their own.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry
        self._refusals = TokenBuckets(per_second=1.0, burst=100.0)
        """Lines about refusals, by network address: nobody fills the disk with them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_seconds = time.perf_counter()
        status, num_bytes = GONE, 0

        async def send_and_note(message: Message) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._record(scope, status, num_bytes, time.perf_counter() - start_seconds)

    def _record(self, scope: Scope, status: int, num_bytes: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        # A name that somebody has made up would be a time series of its own.
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._telemetry.request_seconds.labels(method, route, str(status)).observe(seconds)
        if status < 400 and scope["path"].startswith(QUIET_PREFIXES):
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
