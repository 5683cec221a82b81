"""Measurement of the time that every request takes."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.observability.telemetry import Telemetry


class RequestTimer:
    """ASGI middleware that records the seconds of every request by method, route and status.

    The label is the template of the route (`/v1/jobs/{job_id}`), not the path, so that ids create no time series of
    their own.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_seconds = time.perf_counter()
        status = 500

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            seconds = time.perf_counter() - start_seconds
            self._telemetry.request_seconds.labels(scope["method"], route, str(status)).observe(seconds)
