"""Checks of a request body before an endpoint reads it: it must be JSON, and not too large."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import ProblemError

MAX_INGEST_BYTES = 16 * 2**20
"""Largest request body of the ingest endpoints, in bytes: workers send reports in batches of 1,000 lines."""
INGEST_PREFIX = "/v1/ingest/"


class BodyGuard:
    """ASGI middleware that refuses a body that is not JSON (415) or too large (413).

    The size limit also holds for a request without Content-Length. A request whose body is cut off is not carried out,
    and gets no answer.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        max_bytes = MAX_INGEST_BYTES if scope["path"].startswith(INGEST_PREFIX) else self._max_bytes
        try:
            _check_headers(headers, max_bytes)
            body = await _read_body(receive, max_bytes)
        except ProblemError as problem:
            await problem.to_response()(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _replay(body, receive), send)


def _check_headers(headers: dict[bytes, str], max_bytes: int) -> None:
    length = headers.get(b"content-length", "0")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    has_body = length != "0" or b"transfer-encoding" in headers
    content_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if has_body and content_type != "application/json":
        actual = content_type or "none"
        raise ProblemError(
            "unsupported-media-type",
            415,
            "The body is not JSON",
            f"the content type is {actual} (valid: application/json)",
        )


async def _read_body(receive: Receive, max_bytes: int) -> bytes | None:
    """Read the whole body; return None where the connection ends before it. Raises ProblemError where it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields `body` once, and afterwards the messages of the original `receive`."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return pending.pop() if pending else await receive()

    return receive_replayed


def _too_large(max_bytes: int) -> ProblemError:
    return ProblemError("too-large", 413, "The body is too large", f"the body exceeds the limit of {max_bytes:,} bytes")
