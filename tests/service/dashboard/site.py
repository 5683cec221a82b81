"""A running service as the tests of the dashboard see it."""

from dataclasses import dataclass

from service.client import Client


@dataclass(frozen=True)
class Site:
    """Address of a running service, a client of it, and its sign-in link, which works once."""

    url: str
    client: Client
    signin_link: str
