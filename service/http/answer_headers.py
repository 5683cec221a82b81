"""Headers that every answer has: what a browser may do with it, and the id of the request."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.request_body import has_body
from service.http.request_ids import HEADER as REQUEST_ID

STATIC_PREFIX = "/static/"
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Headers of an answer that is not a page: a browser must not show, embed or keep it."""
HTTPS_ONLY = "max-age=31536000"
"""Strict-Transport-Security: seconds for which a browser that came over https comes over https alone."""


class AnswerHeaders:
    """ASGI middleware that completes the headers of every answer; those that an endpoint has set stay."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_body_left = has_body(scope)

        async def receive_and_note_end() -> Message:
            nonlocal is_body_left
            message = await receive()
            is_body_left = is_body_left and message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                _complete(headers, scope)
                if is_body_left:
                    # The connection would have to wait for the rest of a body that nobody wants.
                    headers["connection"] = "close"
            await send(message)

        await self._app(scope, receive_and_note_end, send_with_headers)


def _complete(headers: MutableHeaders, scope: Scope) -> None:
    headers[REQUEST_ID] = scope["state"]["request_id"]
    if scope["path"].startswith(STATIC_PREFIX):
        # Kept by browsers, which ask each time whether it has changed.
        headers.setdefault("cache-control", "no-cache")
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    if scope["scheme"] == "https":
        headers["strict-transport-security"] = HTTPS_ONLY
