"""The network interface over which this machine reaches another one."""

import socket

import psutil


def find_own_address(host: str, port: int) -> str:
    """Return the address of this machine from which packets to `host` are sent; nothing is sent. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def find_interface(own_address: str) -> str | None:
    """Return the name of the interface that has `own_address`, such as eth0; None if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own_address for address in addresses):
            return name
    # All of 127.0.0.0/8 belongs to the loopback interface, which lists one address of it.
    return "lo" if own_address.startswith("127.") else None
