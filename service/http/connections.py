"""Connections of clients: how fast they come, how many there are, how much each may send unread, and for how long."""

import asyncio
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from service.http.answers import COMMON_HEADERS
from service.http.limits import TokenBuckets
from service.http.problems import ProblemError
from service.http.request_log import REQUEST_ID, begin_request
from service.http.request_origin import normalise_address, parse_networks
from service.ids import new_id

READ_BYTES = 2**14
"""Largest part of a request, in bytes, that is read at a time."""
BURST_SECONDS = 10.0
"""Seconds whose connections may come all at once."""
MAX_CLOSED_AT_ONCE = 256
"""Connections to close before existing ones are served again."""
RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which a closed connection keeps nothing of the kernel's memory."""
MIN_READ_BYTES = 2**20
"""Bytes of an answer that a client must take within the time for it to get as much time again."""
BYTES_ACKED = 120
"""Offset of the number of bytes that the other side has acknowledged, in the kernel's `tcp_info`."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of a service."""

    max_connections: int = 1500
    header_seconds: float = 10.0
    """Time from the first byte of a request, or from the beginning of the connection, to the end of its headers."""
    idle_seconds: int = 20
    """Time that a connection stays open without a request."""
    answer_seconds: float = 60.0
    """Time for a client to read an answer that does not fit into the buffers of the connection, or MIN_READ_BYTES."""


class BoundedProtocol(H11Protocol):
    """HTTP over one connection, which is closed once a limit is exceeded.

    If there are too many connections, the one that has waited longest for a request is closed, so that idle connections
    cannot keep others out.
    """

    limits: ClassVar[ConnectionLimits]
    waiting: ClassVar[dict["BoundedProtocol", None]]
    """Connections without a request to be answered, in the order in which they began to wait."""

    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _num_bytes_read: int = 0
    """Bytes that the client had taken when the timer was started."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        # asyncio has no other way to set this. Its 256 KiB for each of many connections would be too much.
        cast("Any", transport).max_size = READ_BYTES
        self._start_header_timer()
        self.waiting[self] = None
        if len(self.connections) > self.limits.max_connections:
            next(iter(self.waiting))._abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()
            # The next part is read when the application asks for it.
            self.flow.pause_reading()
        elif self._header_timer is None:
            self._start_header_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._start_answer_timer()
        else:
            self._answer_timer = _cancel(self._answer_timer)
        if not self._is_answering():
            self.waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with a problem document, which no middleware sees."""
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self._abort()
            return
        request_id = new_id("req")
        begin_request(request_id)
        problem = ProblemError("malformed-request", msg).to_response()
        headers = {**COMMON_HEADERS, REQUEST_ID: request_id, "connection": "close"}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        head = h11.Response(status_code=400, headers=[*problem.raw_headers, *encoded], reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(problem.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_answer_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._answer_timer = _cancel(self._answer_timer)
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        self._header_timer = _cancel(self._header_timer)

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.limits.header_seconds, self._abort)

    def _start_answer_timer(self) -> None:
        if self._answer_timer is None:
            self._num_bytes_read = self._count_bytes_read()
            self._answer_timer = self.loop.call_later(self.limits.answer_seconds, self._abort_unless_read)

    def _abort_unless_read(self) -> None:
        self._answer_timer = None
        if not self.transport.get_write_buffer_size():
            return
        if self._count_bytes_read() - self._num_bytes_read >= MIN_READ_BYTES:
            # A download of an hour is no reason to end it.
            self._start_answer_timer()
        else:
            self._abort()

    def _count_bytes_read(self) -> int:
        """Return the bytes that the client has taken over this connection; 0 if the kernel does not say."""
        connected = self.transport.get_extra_info("socket")
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED + 8) if connected else b""
        return int.from_bytes(info[BYTES_ACKED:], sys.byteorder)

    def _abort(self) -> None:
        """Close the connection at once, without sending what is left."""
        self._stop_waiting()
        connected = self.transport.get_extra_info("socket")
        if connected is not None:
            # Reset: the kernel would keep what the client does not read, and go on sending it.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connections.discard(self)
        self.transport.abort()


def make_protocol(limits: ConnectionLimits) -> type[BoundedProtocol]:
    """Make the protocol of the connections of one server."""
    return cast("type[BoundedProtocol]", type("LimitedProtocol", (BoundedProtocol,), {"limits": limits, "waiting": {}}))


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class Listener(socket.socket):
    """Listening socket that closes new connections of an address if it makes too many.

    To serve a connection, if only to refuse its request, takes thirty times as long as to close it: 10,000 of them
    would let others wait for more than a second.
    """

    def __init__(self, family: socket.AddressFamily, per_second: float, trusted_proxies: str) -> None:
        """Accept `per_second` connections a second of each address; any number of `trusted_proxies`, see `Settings`."""
        # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it a request takes 40 ms longer.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._buckets = TokenBuckets(per_second, BURST_SECONDS * per_second)
        self._trusted = parse_networks(trusted_proxies)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection that is within the limit. Raises BlockingIOError if there is none."""
        for _ in range(MAX_CLOSED_AT_ONCE):
            connection, address = super().accept()
            if self._may_connect(address[0]):
                return connection, address
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        raise BlockingIOError

    def _may_connect(self, host: str) -> bool:
        wait_seconds = self._buckets.take(normalise_address(host))
        return wait_seconds == 0.0 or any(ip_address(host) in network for network in self._trusted)
