"""Connections that send whatever bytes an attack wants, and when it wants."""

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.attacks.target import HOST, Target
from tests.service.raw import make_head

SECONDS = 60.0
"""Longest wait for a part of an answer."""
NO_ANSWER = 0
"""Status of a request that the service has not answered, whether it has closed the connection or not."""
MANY = 50
"""Threads of an attack that sends many requests at once."""


@contextmanager
def connect(target: Target, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """Connect from the address of the attack. receive_bytes: buffer of the kernel for what is not read."""
    with socket.socket() as connection:
        connection.settimeout(SECONDS)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        # Whoever opens thousands of connections would run out of ports, if each had one of its own for all addresses.
        connection.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        connection.bind((target.source, 0))
        with suppress(ConnectionResetError):
            # The service closes at once what one address opens too fast.
            connection.connect((HOST, target.port))
        yield connection


def make_json_head(path: str, key: str | None, num_bytes: int) -> bytes:
    """Make the head of a POST whose body is JSON."""
    return make_head("POST", path, key, content_type="application/json", content_length=str(num_bytes))


def read_status(connection: socket.socket) -> int:
    """Read one answer to its end, and return its status; NO_ANSWER where the connection ends before or stays silent."""
    received = b""
    try:
        while b"\r\n\r\n" not in received:
            if not (part := connection.recv(65_536)):
                return NO_ANSWER
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        left = int(lengths[0].partition(b":")[2]) - len(body) if lengths else 0
        while left > 0:
            if not (part := connection.recv(65_536)):
                return NO_ANSWER
            left -= len(part)
    except (ConnectionError, TimeoutError):
        return NO_ANSWER
    return int(head.split()[1])


def send_bytes(target: Target, *parts: bytes) -> int:
    """Send bytes over a connection of their own, and return the status of the answer."""
    with connect(target) as connection:
        with suppress(ConnectionError):
            # The service may answer, and close, before it has all.
            for part in parts:
                connection.sendall(part)
        return read_status(connection)


def send(target: Target, method: str, path: str, key: str | None = None, body: Any = None, **headers: str) -> int:
    """Send a request, and return the status of its answer. body: bytes, or what is sent as JSON."""
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    if content is not None:
        headers = {"content_type": "application/json", "content_length": str(len(content))} | headers
    return send_bytes(target, make_head(method, path, key, **headers), content or b"")


def send_at_once(number: int, act: Callable[[int], int]) -> Counter[int]:
    """Call `act` with every number below `number` from MANY threads, and count the statuses it returns."""
    with ThreadPoolExecutor(MANY) as pool:
        return Counter(pool.map(act, range(number)))


def describe(statuses: Iterable[int]) -> str:
    """Describe statuses in few words: `401`, `20 x 401, 3 x 429`."""
    counts = Counter(statuses)
    if len(counts) == 1:
        return describe_status(next(iter(counts)))
    return ", ".join(f"{number:,} x {describe_status(status)}" for status, number in sorted(counts.items()))


def describe_status(status: int) -> str:
    return "no answer" if status == NO_ANSWER else str(status)
