"""Attacks by connections: too many, too slow, or with answers that nobody reads."""

import re
import resource
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from benchmarks.attacks.attack import Attack, fill
from benchmarks.attacks.sending import connect, describe
from benchmarks.attacks.target import Target
from tests.service.raw import make_head

NUM_CONNECTIONS = 10_000
SPARE_FILES = 200
NUM_SLOW = 500
HOLD_SECONDS = 4.0
SMALL_BUFFER = 4096
"""Bytes that the kernel keeps for a client if it does not read."""


def _connect_many(sent: bytes) -> Callable[[Target], str]:
    """Make the function that opens as many connections as it can, and sends the same over each."""

    def run(target: Target) -> str:
        max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = min(NUM_CONNECTIONS, max_files - SPARE_FILES)
        with ExitStack() as stack:
            made = [_connect_and_send(stack, target, sent) for _ in range(number)]
            return f"{len(made):,} made"

    return run


def _connect_and_send(stack: ExitStack, target: Target, sent: bytes) -> socket.socket:
    connection = stack.enter_context(connect(target))
    with suppress(ConnectionError):
        # The service may have closed it already.
        connection.sendall(sent)
    return connection


def _count_open(connections: Sequence[socket.socket]) -> int:
    """Count the connections that the service has not closed, those with an answer included."""
    poller = select.poll()
    for connection in connections:
        poller.register(connection, select.POLLRDHUP)
    return len(connections) - len(poller.poll(0))


def _dribble(start: bytes, part: bytes) -> Callable[[Target], str]:
    """Make the function that opens NUM_SLOW connections and sends a little over each, again and again."""

    def run(target: Target) -> str:
        with ExitStack() as stack:
            begun = start.replace(b"%KEY%", target.keys["attacker"].encode())
            connections = [_connect_and_send(stack, target, begun) for _ in range(NUM_SLOW)]
            end = time.monotonic() + HOLD_SECONDS
            while time.monotonic() < end:
                for connection in connections:
                    with suppress(ConnectionError):
                        connection.sendall(part)
                time.sleep(0.1)
            return f"{NUM_SLOW} made, {_count_open(connections)} kept after {HOLD_SECONDS:g} s"

    return run


def _never_read(path: str, number: int, keys: Sequence[str], at_once: int = 1) -> Callable[[Target], str]:
    """Make the function that sends requests over `number` connections, `at_once` over each, and reads no answer."""

    def run(target: Target) -> str:
        with ExitStack() as stack:
            connections = [stack.enter_context(connect(target, SMALL_BUFFER)) for _ in range(number)]
            for turn, connection in enumerate(connections):
                key = target.keys[keys[turn % len(keys)]] if keys else None
                with suppress(ConnectionError):
                    connection.sendall(make_head("GET", fill(path, target), key) * at_once)
            time.sleep(HOLD_SECONDS)
            return f"{number} made, {_count_open(connections)} kept after {HOLD_SECONDS:g} s"

    return run


def _pipeline(path: str, number: int, key: str | None) -> Callable[[Target], str]:
    """Make the function that sends many requests over one connection before it reads the first answer."""

    def run(target: Target) -> str:
        head = make_head("GET", fill(path, target), target.keys[key] if key else None)
        with connect(target) as connection:
            connection.sendall(head * (number - 1) + head.replace(b"host:", b"connection: close\r\nhost:"))
            answers = b"".join(iter(lambda: connection.recv(2**16), b""))
        return describe(int(status) for status in re.findall(rb"HTTP/1.1 (\d{3}) ", answers))

    return run


BODY = b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %KEY%\r\ncontent-type: application/json\r\n"
CONNECTIONS = [
    Attack("10,000 silent connections", _connect_many(b"")),
    Attack("10,000 connections with 8 kB of a header each", _connect_many(b"GET / HTTP/1.1\r\nx: " + b"x" * 8192)),
    Attack("10,000 connections that ask without a key", _connect_many(make_head("GET", "/v1/jobs"))),
    Attack("500 headers in drops", _dribble(b"GET / HTTP/1.1\r\nhost: x\r\n", b"x: y\r\n")),
    Attack("500 bodies in drops, with a key", _dribble(BODY + b"content-length: 100000\r\n\r\n", b" ")),
    Attack(
        "500 bodies in chunks of a byte, with a key",
        _dribble(BODY + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ),
    Attack(
        "100 curves of 1.8 MB that nobody reads",
        _never_read("/v1/jobs/{job}/metrics?limit=10000", 100, ["attacker", "victim"]),
    ),
    Attack(
        "100 logs of 1 MB that nobody reads",
        _never_read("/v1/jobs/{job}/logs?limit_bytes=1048576", 100, ["attacker", "victim"]),
    ),
    Attack("500 OpenAPI documents that nobody reads, without a key", _never_read("/openapi.json", 500, [])),
    Attack(
        "500 static files that nobody reads, without a key",
        _never_read("/static/vendor/uplot/uPlot.iife.min.js", 500, []),
    ),
    Attack(
        "50 connections with 20 job lists each that nobody reads",
        _never_read("/v1/jobs?limit=200", 50, ["attacker", "victim"], 20),
    ),
    Attack("1,000 requests at once on one connection, without a key", _pipeline("/healthz", 1000, None)),
    Attack("1,000 requests at once on one connection, with a key", _pipeline("/v1/jobs/{job}", 1000, "attacker")),
]
