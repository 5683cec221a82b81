"""Answers to requests, whoever gives them: the fake, or a real server behind the server of faults."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import Json
from tests.kubernetes.fake.routes import Call


class Watch(Protocol):
    """Stream of the changes of objects."""

    def events(self) -> Iterator[Json | None]:
        """Yield events as they come, and None whenever none has come for a while."""
        ...

    def close(self) -> None:
        """End the watch."""
        ...


@dataclass
class Response:
    """Answer to a request: a document, a text, or a stream."""

    code: int
    document: Json | None = None
    text: str = ""
    watch: Watch | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def to_bytes(self) -> bytes:
        """Return the body."""
        if self.document is None:
            return self.text.encode()
        return json.dumps(self.document, separators=(",", ":")).encode()


class Answerer(Protocol):
    """Whoever answers calls that are not made to fail."""

    def answer(self, call: Call, body: bytes, content_type: str) -> Response:
        """Carry a call out. Raises ApiError."""
        ...


def error_response(error: ApiError) -> Response:
    """Return the answer to a request that fails."""
    seconds = error.retry_after_seconds
    return Response(error.code, error.to_status(), headers={} if seconds is None else {"Retry-After": str(seconds)})
