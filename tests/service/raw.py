"""Connections to a service that send whatever bytes a test wants, and when it wants."""

import json
import re
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.patience import PATIENCE_SECONDS
from tests.service.api import Api


@dataclass(frozen=True)
class Answer:
    """An answer as it came over a connection."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        return json.loads(self.body)


class Connection:
    """A connection of its own to a service."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = bytearray()
        """Bytes that came after the last answer."""

    def send(self, *parts: bytes) -> None:
        self._socket.sendall(b"".join(parts))

    def read_to_end(self) -> bytes:
        """Read until the service closes the connection."""
        received, self._received = self._received, bytearray()
        try:
            while part := self._socket.recv(65_536):
                received += part
        except ConnectionResetError:
            pass
        return bytes(received)

    def is_readable(self) -> bool:
        """Whether something has come that was not read."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def wait_until_readable(self) -> None:
        assert select.select([self._socket], [], [], PATIENCE_SECONDS)[0]

    def wait_until_reset(self) -> None:
        """Wait until the service resets the connection, without reading."""
        poller = select.poll()
        poller.register(self._socket, select.POLLERR)
        assert poller.poll(1000 * PATIENCE_SECONDS)

    def read_answer(self) -> Answer:
        """Read one answer, whose length must be in its header."""
        while b"\r\n\r\n" not in self._received:
            self._received += self._read_part()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        answer = _parse_head(bytes(head))
        length = int(answer.headers.get("content-length", "0"))
        while len(self._received) < length:
            self._received += self._read_part()
        body, self._received = self._received[:length], self._received[length:]
        return Answer(answer.status, answer.headers, bytes(body))

    def _read_part(self) -> bytes:
        part = self._socket.recv(65_536)
        assert part, "the service closed the connection"
        return part


@contextmanager
def connect(url: str, receive_bytes: int | None = None) -> Iterator[Connection]:
    """Connect to the service without sending anything.

    receive_bytes: bytes that the kernel receives before anybody reads; None for its own choice, some megabytes.
    """
    address = urlsplit(url)
    with socket.socket() as connected:
        if receive_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connected.settimeout(PATIENCE_SECONDS)
        connected.connect((address.hostname, address.port))
        yield Connection(connected)


def make_head(method: str, target: str, key: str | None = None, **headers: str) -> bytes:
    """Make the head of a request. headers: by their names, with `_` for `-`."""
    lines = [f"{method} {target} HTTP/1.1", "host: localhost"]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def get_key(client_headers: Any) -> str:
    """Return the API key that a client sends."""
    return client_headers["authorization"].removeprefix("Bearer ")


def count_requests(api: Api, method: str) -> int:
    """Count the requests that the service has dealt with, whatever came of them."""
    figures = api.services.telemetry.render().decode()
    pattern = rf'^dlrm_request_seconds_count{{method="{method}",[^}}]*}} ([0-9.]+)$'
    return sum(int(float(number)) for number in re.findall(pattern, figures, re.MULTILINE))


def _parse_head(head: bytes) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, b"")
