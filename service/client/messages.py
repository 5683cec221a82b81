"""Server-sent events as the client reads them."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """Message of a stream."""

    name: str
    data: str
    """Content as JSON."""
    last_id: str | None
    """Id of the newest message that has one, to go on after it; None before the first one."""


class MessageDecoder:
    """Decoder of a stream that comes in parts. Lines end with a line feed, as the service writes them."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._last_id: str | None = None

    def feed(self, part: bytes) -> Iterator[Message]:
        """Yield the messages that are complete with `part`; comments and unknown fields are left out."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            field, _, value = line.decode("utf-8", "replace").removesuffix("\r").partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                self._name = value
            elif field == "data":
                self._data.append(value)
            elif field == "id":
                self._last_id = value
            elif not line:
                if self._data:
                    yield Message(self._name or "message", "\n".join(self._data), self._last_id)
                self._name, self._data = "", []
