"""Headers that every answer has."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.request_body import has_body


class AnswerHeaders:
    """ASGI middleware that completes the headers of every answer."""

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
                if is_body_left:
                    # The connection would have to wait for the rest of a body that nobody wants.
                    headers["connection"] = "close"
            await send(message)

        await self._app(scope, receive_and_note_end, send_with_headers)
