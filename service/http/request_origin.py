"""Network address and id of a request, which are recorded with what it changes."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

Network = IPv4Network | IPv6Network
IPV6_PREFIX_BITS = 64
"""Bits of an IPv6 address that its network is known by: whoever has one address there has all of them."""


@dataclass(frozen=True)
class RequestOrigin:
    """Origin of a request."""

    address: str
    """Network address of the client."""
    request_id: str


NO_REQUEST = RequestOrigin("", "")
"""Origin of what the service does by itself."""


def get_request_origin(request: Request) -> RequestOrigin:
    address = request.client.host if request.client else ""
    return RequestOrigin(address, str(getattr(request.state, "request_id", "")))


OriginDependency = Annotated[RequestOrigin, Depends(get_request_origin)]
"""Parameter type of an endpoint that needs the origin of its request."""


def get_address(scope: Scope) -> str:
    """Return the network address that a request comes from; empty if the server does not know it."""
    return normalise_address((scope["client"] or ("",))[0])


def parse_networks(text: str) -> list[Network]:
    """Parse networks that are separated by commas."""
    return [ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()]


def normalise_address(host: str) -> str:
    """Return what stands for `host` in limits: an IPv4 address, an IPv6 network, or `host` if it is neither."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), IPV6_PREFIX_BITS), strict=False))
    return str(address)
