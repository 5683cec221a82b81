"""Keys and browsers of tests, and changes to their rows that only time would make."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
from sqlalchemy import update

from service.database import Base
from service.ids import new_id
from service.keys.models import ApiKey, BrowserSession, SignInToken
from service.times import now
from tests.service.api import Api


def create_key(api: Api, **fields: Any) -> dict[str, Any]:
    """Create a key over the API, under a name of its own unless `fields` has one, and return it with its secret."""
    response = api.admin.post("/v1/keys", json={"name": new_id("key"), "role": "viewer"} | fields)
    assert response.status_code == 201, response.text
    return response.json()


def get_key(api: Api, key_id: str) -> dict[str, Any]:
    return next(key for key in list_keys(api.admin) if key["id"] == key_id)


def list_keys(client: httpx.Client) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get("/v1/keys", params={"cursor": cursor} if cursor else {}).json()
        keys += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return keys


def expire_key(api: Api, key_id: str) -> None:
    """Let the time of a key be over."""
    _expire(api, ApiKey, ApiKey.id == key_id)
    # The service looks a key that it has found up again only a second later.
    api.services.keys._found.clear()


def expire_links(api: Api) -> None:
    _expire(api, SignInToken, SignInToken.expires_at.is_not(None))


def expire_sessions(api: Api) -> None:
    _expire(api, BrowserSession, BrowserSession.expires_at.is_not(None))


def _expire(api: Api, table: type[Base], condition: Any) -> None:
    with api.services.database.write() as session:
        session.execute(update(table).where(condition).values(expires_at=now() - timedelta(seconds=1)))


@contextmanager
def sign_in(api: Api, **credentials: str) -> Generator[httpx.Client]:
    """Sign a browser in with a key or the token of a link, and yield a client that has its cookie."""
    with api.make_client(None) as browser:
        response = browser.post("/v1/session", json=credentials)
        assert response.status_code == 204, response.text
        yield browser
