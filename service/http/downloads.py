"""Answers with a content of any size: one range of it, or the whole, a part at a time."""

import re
from collections.abc import AsyncGenerator
from typing import Any, Protocol
from urllib.parse import quote

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from service.http.answers import IS_HEAD, has_tag
from service.http.limits import Threads
from service.http.problems import ProblemError

READ_BYTES = 2**19
"""Bytes of a download that are read, and so in memory, at a time."""
_RANGE = re.compile(r"bytes=(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))", re.ASCII)
DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes; `Content-Length` says how many, `ETag` is strong",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {"description": "The range of bytes that `Range` asks for, see `Content-Range`"},
    304: {"description": "The client has these bytes already: `If-None-Match` names their `ETag`"},
}
"""Responses of an operation that sends a content, for its documentation."""


class Content(Protocol):
    """Bytes that are the same for as long as `tag` is."""

    num_bytes: int
    tag: str
    """Strong entity tag, in quotes."""

    def read(self, start: int, num_bytes: int) -> bytes:
        """Read exactly `num_bytes` from `start` on."""
        ...


def send_content(request: Request, content: Content, file_name: str, media_type: str, threads: Threads) -> Response:
    """Answer with a content as a file to be saved. Its bytes are read in `threads` while the client takes them.

    Raises ProblemError (416) if `Range` asks for what is beyond its end.
    """
    headers = {
        "ETag": content.tag,
        "Accept-Ranges": "bytes",
        # Compressed on its way it would have other bytes than its tag and its ranges say.
        "Cache-Control": "private, no-cache, no-transform",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file_name)}",
    }
    if has_tag(request, content.tag):
        return Response(status_code=304, headers=headers)
    asked = request.headers.get("range") if request.headers.get("if-range", content.tag) == content.tag else None
    chosen = _parse_range(asked or "", content.num_bytes)
    start, end = chosen or (0, content.num_bytes)
    headers["Content-Length"] = str(end - start)
    if chosen is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.num_bytes}"
    status = 200 if chosen is None else 206
    if request.scope.get(IS_HEAD):
        return Response(status_code=status, headers=headers, media_type=media_type)

    async def read_parts() -> AsyncGenerator[bytes]:
        for position in range(start, end, READ_BYTES):
            yield await threads.run(content.read, position, min(READ_BYTES, end - position))

    return StreamingResponse(read_parts(), status, headers, media_type)


def _parse_range(text: str, num_bytes: int) -> tuple[int, int] | None:
    """Return the half-open range that the header `Range` asks for; None for all bytes, also if it asks for several.

    Raises ProblemError (416) if there are none of them.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    if match[3] is not None:
        start, end = max(0, num_bytes - int(match[3])), num_bytes
    else:
        start, end = int(match[1]), min(int(match[2] or num_bytes) + 1, num_bytes)
    if match[2] and int(match[2]) < int(match[1]):
        return None
    if start >= end:
        detail = f"there are {num_bytes:,} bytes, and {text} asks for none of them (valid: bytes=0-)"
        raise ProblemError("range-not-satisfiable", detail, headers={"Content-Range": f"bytes */{num_bytes}"})
    return start, end
