"""Checks of what stands before the body of a request, whatever its path: the path, the query, the headers."""

from collections import Counter
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Receive, Scope, Send

from dlrm.config import FieldError
from service.http.middleware import HttpMiddleware
from service.http.problems import ProblemError, invalid_request

SINGLE_HEADERS = frozenset({b"authorization", b"content-type", b"idempotency-key", b"x-request-id"})
"""Headers that the service reads; two of one name would contradict each other."""
MAX_PARAMETERS = 100
"""Largest number of query parameters: each unknown one is compared with all known ones, and each label to look for is a
condition of its own."""


class RequestGuard(HttpMiddleware):
    """ASGI middleware that refuses a path, query or header without one clear meaning."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        _check_path(scope["raw_path"])
        _check_query(scope["query_string"])
        _check_headers(scope["headers"])
        await self._app(scope, receive, send)


def _check_path(raw_path: bytes) -> None:
    try:
        path = unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        raise ProblemError("malformed-request", "the path is not UTF-8") from None
    if "\0" in path:
        raise invalid_request([FieldError("path", "contains the character NUL", "a path without %00")])


def _check_query(query: bytes) -> None:
    if query.count(b"&") >= MAX_PARAMETERS:
        raise invalid_request([FieldError("query", "has too many parameters", f"up to {MAX_PARAMETERS}")])
    try:
        parameters = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise ProblemError("malformed-request", "the query is not UTF-8") from None
    faults = [
        FieldError(name.replace("\0", "%00"), "contains the character NUL", "text without %00")
        for name, value in parameters
        if "\0" in name or "\0" in value
    ]
    if faults:
        raise invalid_request(faults)


def _check_headers(headers: list[tuple[bytes, bytes]]) -> None:
    counts = Counter(name for name, _ in headers if name in SINGLE_HEADERS)
    for name, count in counts.items():
        if count > 1:
            raise ProblemError("malformed-request", f"the header {name.decode()} is given {count} times (valid: once)")

    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise ProblemError("malformed-request", "the headers content-length and transfer-encoding exclude each other")
