"""Failures of the service itself, answered with a problem document that says under which id the log has the cause."""

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import ProblemError
from service.http.request_ids import get_request_id

log = structlog.get_logger(__name__)


class Failures:
    """ASGI middleware that answers whatever nothing else has caught.

    The handler of the framework would do so outside of all middleware, and without their headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal is_started
            is_started = is_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except Exception as error:
            log.error("request_failed", method=scope.get("method"), path=scope.get("path"), exc_info=error)
            if is_started or scope["type"] != "http":
                raise
            await _make_problem().to_response()(scope, receive, send)


def _make_problem() -> ProblemError:
    detail = f"the service failed while handling this request; its log has the cause, under {get_request_id()}"
    return ProblemError("internal-error", 500, "The service failed", detail)
