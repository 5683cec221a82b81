"""Answers: headers that all have, HEAD, entity tags, and large answers, few at a time and sent in parts."""

import hashlib
from collections.abc import AsyncGenerator
from importlib.metadata import version
from typing import Any

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.gate import get_sender_id
from service.http.limits import Shares
from service.http.middleware import HttpMiddleware
from service.http.problems import READ_METHODS
from service.http.request_body import has_body
from service.http.request_log import REQUEST_ID

STATIC_PREFIX = "/static/"
COMMON_HEADERS = {
    "dlrm-version": version("dlrm-service"),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Headers of an answer that is not a page: the version of the service, and a browser must not show, embed or keep
it."""
HTTPS_ONLY = "max-age=31536000"
"""Strict-Transport-Security: seconds for which a browser uses https alone once it has come over https."""
TAG_CHARACTERS = 40
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has this answer already: `If-None-Match` names its `ETag`"}
}
"""Response of an operation that answers with an entity tag, for its documentation."""
IS_HEAD = "is_head"
"""Member of the scope of a request that is true if its body is not wanted: whoever would take long for it need not."""
PART_BYTES = 2**16
"""Largest part of an answer: as much as the server buffers before it waits for the client."""
MIN_COMPRESSED_BYTES = 1000
COMPRESSION_LEVEL = 1
"""Level that makes a list of jobs an eighth as long, in 10 ms a megabyte; level 9 takes five times as long for a tenth
less."""
BINARY_TYPES = ("application/octet-stream", "application/x-tar", "application/zstd")
"""Types of files, which compression would not make shorter."""
SLOT_SECONDS = 30.0
"""Longest time that a request waits for a slot for its large answer."""


class AnswerHeaders(HttpMiddleware):
    """ASGI middleware that completes the headers of every answer; those that an endpoint has set stay."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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
    for name, value in COMMON_HEADERS.items():
        headers.setdefault(name, value)
    if scope["scheme"] == "https":
        headers["strict-transport-security"] = HTTPS_ONLY


class HeadAsGet(HttpMiddleware):
    """ASGI middleware that answers HEAD with the status and headers of GET, and no body."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        if scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET", IS_HEAD: True}, receive, send_without_body)
        else:
            await self._app(scope, receive, send)


class CompressedAnswers(GZipMiddleware):
    """ASGI middleware that compresses answers, except to changes.

    The length of a compressed answer says something about a secret in it, if somebody else chooses a part of the
    answer. So answers with new keys and links, which are answers to changes, stay as they are.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            app,
            minimum_size=MIN_COMPRESSED_BYTES,
            compresslevel=COMPRESSION_LEVEL,
            thread_minimum_size=PART_BYTES,
            exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, *BINARY_TYPES),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in READ_METHODS:
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class PacedAnswers(HttpMiddleware):
    """ASGI middleware that sends bodies in parts, so that a request ends once its client has read nearly all.

    Otherwise a request would end at once, whatever is left in the buffer of its connection, and no limit of requests in
    progress would bound the memory of answers that nobody reads.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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


def answer_with_tag(request: Request, model: BaseModel) -> Response:
    """Answer with the JSON of `model` and a tag of its content; with 304 and no body if the client has that tag."""
    body = model.model_dump_json().encode()
    return answer_unless_known(request, body, make_tag(body))


def make_tag(body: bytes) -> str:
    """Make the entity tag of a body."""
    return f'"{hashlib.sha256(body).hexdigest()[:TAG_CHARACTERS]}"'


def answer_unless_known(
    request: Request, body: bytes, tag: str, cache_control: str = COMMON_HEADERS["cache-control"]
) -> Response:
    """Answer with JSON and its tag; with 304 and no body if the client has that tag.

    The tag is a weak one, since the answer may be compressed.
    """
    headers = {"ETag": f"W/{tag}", "Cache-Control": cache_control}
    if has_tag(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def has_tag(request: Request, tag: str) -> bool:
    """Whether the client has the answer with this tag already, as `If-None-Match` says."""
    names = request.headers.get("if-none-match", "").split(",")
    return any(name.strip().removeprefix("W/") in (tag, "*") for name in names)


def need_slot(name: str, total: int, share: int) -> Any:
    """Make the dependency of endpoints that need one of `total` slots until their answer has been sent.

    name: the slots, for the message to those who wait too long. share: number of slots that one sender may have.
    """
    slots = Shares(name, total, share, SLOT_SECONDS)

    async def take_slot(request: Request) -> AsyncGenerator[None]:
        async with slots.take(1, get_sender_id(request.scope)):
            yield

    return Depends(take_slot)
