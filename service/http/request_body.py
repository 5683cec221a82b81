"""Bodies of requests, read before an endpoint is called: JSON or TOML, of bounded size, in bounded time."""

import asyncio
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlrm.config import format_count
from service.http.gate import API_PREFIX, INGEST_PREFIX, SESSION_PATH, get_sender_id
from service.http.limits import Shares
from service.http.middleware import HttpMiddleware
from service.http.problems import READ_METHODS, ProblemError

JSON, TOML = "application/json", "application/toml"
"""Media types of bodies."""
DOCUMENT_PATHS = frozenset({"/v1/documents", "/v1/jobs", "/v1/plans"})
"""Paths whose bodies are job documents, in JSON or TOML."""


@dataclass(frozen=True)
class BodyLimits:
    """Largest bodies, in bytes, and the time that they may take."""

    max_bytes: int = 2**20
    max_ingest_bytes: int = 2**22
    """Largest body of the ingest endpoints: workers send reports in batches of 1,000 lines."""
    max_session_bytes: int = 4096
    """Largest body of a sign-in, which needs no credentials."""
    total_bytes: int = 2**24
    """Bytes of the bodies of all requests in progress; a body may take twice as much while it is parsed. One sender may
    take as much as one body of the largest size."""
    wait_seconds: float = 5.0
    """Longest wait until other requests have left enough of `total_bytes`."""
    start_seconds: float = 10.0
    """Time for the beginning of a body; each `bytes_per_second` that have come add one second."""
    bytes_per_second: int = 2**16

    def get_max_bytes(self, path: str) -> int:
        """Return the size of the largest body of a request to `path`."""
        if path == SESSION_PATH:
            return self.max_session_bytes
        return self.max_ingest_bytes if path.startswith(INGEST_PREFIX) else self.max_bytes


class BodyGuard(HttpMiddleware):
    """ASGI middleware that reads the body of a request to the API.

    Refuses one of another type than the path takes (415), that is too large (413), comes too slowly (408), or finds no
    memory (503). The size limit also holds for a request without Content-Length. A request whose body is cut off is not
    carried out, and gets no answer.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        super().__init__(app)
        self._limits = limits
        share = max(limits.max_bytes, limits.max_ingest_bytes)
        self._memory = Shares("memory for bodies", limits.total_bytes, share, limits.wait_seconds)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_body_wanted(scope):
            await self._app(scope, receive, send)
            return
        max_bytes = self._limits.get_max_bytes(scope["path"])
        types = (JSON, TOML) if scope["path"] in DOCUMENT_PATHS else (JSON,)
        num_bytes = _check_headers(_get_headers(scope), max_bytes, types)
        async with self._memory.take(num_bytes, get_sender_id(scope)):
            pending = await self._read(receive, max_bytes)
            if pending:
                await self._app(scope, _replay(pending, receive), send)

    async def _read(self, receive: Receive, max_bytes: int) -> list[Message]:
        """Read the whole body, and return the one message that has it; none if the connection ends before it.

        Raises ProblemError if it is too large or comes too slowly.
        """
        body = bytearray()
        start_seconds = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(None) as limit:
                while True:
                    limit.reschedule(
                        start_seconds + self._limits.start_seconds + len(body) / self._limits.bytes_per_second
                    )
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return []
                    body += message.get("body", b"")
                    if len(body) > max_bytes:
                        raise _too_large(max_bytes)
                    if not message.get("more_body", False):
                        return [{"type": "http.request", "body": bytes(body), "more_body": False}]
        except TimeoutError:
            raise _too_slow(len(body), self._limits) from None


def has_body(scope: Scope) -> bool:
    """Whether the headers of a request announce a body."""
    headers = _get_headers(scope)
    return headers.get(b"content-length", "0") != "0" or b"transfer-encoding" in headers


def _is_body_wanted(scope: Scope) -> bool:
    return scope["path"].startswith(API_PREFIX) and scope["method"] not in READ_METHODS and has_body(scope)


def _get_headers(scope: Scope) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def get_media_type(content_type: str) -> str:
    """Return the media type in a header Content-Type, without its parameters; empty if there is none."""
    return content_type.partition(";")[0].strip().lower()


def _check_headers(headers: dict[bytes, str], max_bytes: int, types: tuple[str, ...]) -> int:
    """Return the largest size, in bytes, that the body may have. Raises ProblemError if it is refused.

    types: media types that it may have.
    """
    # The server refuses a length that is not a number.
    length = int(headers.get(b"content-length", max_bytes))
    if length > max_bytes:
        raise _too_large(max_bytes)
    media_type = get_media_type(headers.get(b"content-type", ""))
    if media_type not in types:
        detail = f"the content type is {media_type or 'none'} (valid: {', '.join(types)})"
        raise ProblemError("unsupported-media-type", detail)
    return length


def _replay(pending: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that yields what is pending, and afterwards the messages of the original `receive`.

    Each message is removed from the list, so that its body is kept by nobody who does not need it.
    """

    async def receive_replayed() -> Message:
        return pending.pop() if pending else await receive()

    return receive_replayed


def _too_large(max_bytes: int) -> ProblemError:
    return ProblemError("too-large", f"the body exceeds the limit of {max_bytes:,} bytes")


def _too_slow(num_bytes: int, limits: BodyLimits) -> ProblemError:
    detail = (
        f"only {format_count(num_bytes, 'byte')} of the body came (valid: {limits.bytes_per_second:,} bytes a second, "
        f"after the first {limits.start_seconds:g} seconds)"
    )
    return ProblemError("slow-body", detail)
