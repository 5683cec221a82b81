"""Large answers, sent in parts, so that a request is in progress until its client has read nearly all of the answer."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PART_BYTES = 2**16
"""Largest part: as much as the server buffers before it waits for the client."""


class PacedAnswers:
    """ASGI middleware that sends bodies in parts.

    Otherwise a request would end at once, whatever is left in the buffer of its connection, and no limit of requests in
    progress would bound the memory of answers that nobody reads.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_parts(message: Message) -> None:
            body: bytes = message.get("body", b"")
            if message["type"] == "http.response.body" and len(body) > PART_BYTES:
                await _send_parts(body, message.get("more_body", False), send)
            else:
                await send(message)

        await self._app(scope, receive, send_in_parts)


async def _send_parts(body: bytes, has_more: bool, send: Send) -> None:
    view = memoryview(body)
    for start in range(0, len(body), PART_BYTES):
        end = start + PART_BYTES
        part = bytes(view[start:end])
        await send({"type": "http.response.body", "body": part, "more_body": has_more or end < len(body)})
