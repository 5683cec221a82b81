"""One request to a webhook: signed by the specification Standard Webhooks, to an address that was checked.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import asyncio
import base64
import hashlib
import hmac
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx

from service.http.request_origin import Network

SECRET_PREFIX = "whsec_"
MAX_SECONDS = 10.0
"""Seconds within which a receiver must have answered, look-up of its name included."""
_HIDING = [ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")]
"""Networks of IPv6 addresses that stand for an IPv4 address, perhaps a private one."""
_UNSAFE = [ip_network(text) for text in ("168.63.129.16/32", "fec0::/10", "5f00::/16", "3fff::/20")]
"""Networks that Python takes for public, by its version: Azure's own services of a host, site-local addresses, segment
routing within a network, and addresses of documentation."""


class UndeliveredError(Exception):
    """Error raised where a receiver did not answer with success; the text says why."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """Status of its answer; None without an answer."""


def sign(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """Return the header `webhook-signature` of a request."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def is_allowed(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    """Whether requests may go to an address: a public one, or one in `networks`."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in networks):
        return True
    return plain.is_global and not plain.is_multicast and not any(plain in network for network in _HIDING + _UNSAFE)


def find_forbidden_address(url: str, networks: Sequence[Network]) -> str | None:
    """Say why no request may go to a URL whose host is an address or this machine; None if nothing speaks against it.

    Names are looked up at each request: what they mean may change.
    """
    host = httpx.URL(url).host
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None
    return None if is_allowed(address, networks) else f"{host} is not a public address"


async def find_address(host: str, port: int, networks: Sequence[Network]) -> str:
    """Look a host up, and return an address to connect to. Raises UndeliveredError.

    A connection goes to this very address: a name that is looked up again might mean another one then.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UndeliveredError(f"the host {host} is not known: {error}") from None
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    allowed = [address for address in addresses if is_allowed(ip_address(address), networks)]
    if not allowed:
        raise UndeliveredError(f"the host {host} is not a public one (DLRM_WEBHOOK_NETWORKS allows others)")
    return allowed[0]


async def post(url: str, headers: dict[str, str], body: str, networks: Sequence[Network]) -> int:
    """Send one request, and return the status of a successful answer, whose body is not read.

    No redirect is followed, and no proxy is used. Raises UndeliveredError.
    """
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await _post(httpx.URL(url), headers, body, networks)
    except TimeoutError:
        raise UndeliveredError(f"no answer within {MAX_SECONDS:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise UndeliveredError(f"no answer: {error or type(error).__name__}") from None


async def _post(url: httpx.URL, headers: dict[str, str], body: str, networks: Sequence[Network]) -> int:
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    address = await find_address(url.host, port, networks)
    async with (
        httpx.AsyncClient(trust_env=False, timeout=MAX_SECONDS) as client,
        client.stream(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers={**headers, "host": url.netloc.decode(), "content-type": "application/json"},
            extensions={"sni_hostname": url.host},
        ) as response,
    ):
        status = response.status_code
    if not 200 <= status < 300:
        raise UndeliveredError(f"the answer was {status}", status)
    return status
