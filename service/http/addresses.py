"""Network addresses of clients."""

from ipaddress import IPv6Address, ip_address, ip_network

from starlette.types import Scope

IPV6_PREFIX_BITS = 64
"""Bits of an IPv6 address that its network is known by: whoever has one address there has all of them."""


def get_address(scope: Scope) -> str:
    """Return the network address that a request comes from; empty where the server does not know it."""
    return normalise_address((scope["client"] or ("",))[0])


def normalise_address(host: str) -> str:
    """Return what stands for `host` in limits: an IPv4 address, an IPv6 network, or `host` where it is neither."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), IPV6_PREFIX_BITS), strict=False))
    return str(address)
