"""Keys of further owners."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx

from service.access.principal import Role
from service.ids import new_id
from tests.service.api import Api


@contextmanager
def make_key(api: Api, owner: str, role: Role, name: str | None = None) -> Generator[httpx.Client]:
    """Create a key of `owner`, under a name of its own where `name` is None, and yield a client that sends it."""
    with api.make_client(api.services.keys.create(name or new_id("key"), role, owner=owner).key) as client:
        yield client
