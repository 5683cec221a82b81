"""Socket that listens, and closes at once what one network address opens too fast."""

import socket
import struct
from ipaddress import ip_address, ip_network
from typing import Any

from service.http.addresses import normalise_address
from service.http.token_buckets import TokenBuckets

BURST_SECONDS = 10.0
"""Seconds whose connections may come all at once."""
MAX_CLOSED_AT_ONCE = 256
"""Connections that are closed before those that exist are served again."""
RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which a connection that is closed keeps nothing of the kernel's memory."""


class Listener(socket.socket):
    """Listening socket that closes new connections of an address that makes too many.

    To serve a connection, if only to refuse its request, takes thirty times as long as to close it: 10,000 of them
    would let others wait for more than a second.
    """

    def __init__(self, family: socket.AddressFamily, per_second: float, trusted_proxies: str) -> None:
        """Accept `per_second` connections a second of each address; any number of `trusted_proxies`, see `Settings`."""
        # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it a request takes 40 ms longer.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._buckets = TokenBuckets(per_second, BURST_SECONDS * per_second)
        self._trusted = [ip_network(each.strip(), strict=False) for each in trusted_proxies.split(",") if each.strip()]

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
