"""Base of every ASGI middleware of the service, and the one that answers failures of the service itself."""

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import ProblemError, get_request_id

log = structlog.get_logger(__name__)


class HttpMiddleware:
    """ASGI middleware of requests over HTTP. A problem that `handle` raises is the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self.handle(scope, receive, send)
        except ProblemError as problem:
            await problem.to_response()(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application answer it."""
        raise NotImplementedError


class Failures(HttpMiddleware):
    """ASGI middleware that answers whatever nothing else has caught; the log has the cause.

    The handler of the framework would do so outside of all middleware, and without their headers.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal is_started
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except Exception as error:
            log.error("request_failed", method=scope["method"], path=scope["path"], exc_info=error)
            if is_started:
                raise
            detail = f"the service failed while handling this request; its log has the cause, under {get_request_id()}"
            raise ProblemError("internal-error", detail) from None
