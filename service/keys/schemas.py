"""Keys, sign-in links and sessions as the API receives and returns them."""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from dlrm.config import Name
from service import schemas
from service.access.principal import Role
from service.http.body import Body
from service.http.query import UtcTime

MAX_KEY_DAYS = 3650
"""Longest time until the expiry of a key, in days."""
MAX_LINK_MINUTES = 24 * 60
"""Longest time until a sign-in link expires, in minutes."""

Secret = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class NewKey(Body):
    """A key to be created."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "laptop", "role": "submitter", "owner": "ann", "expires_in_days": 90}]}
    )

    name: Name
    """Name of the key, such as `laptop`; unique among the valid keys of its owner."""
    role: Role
    """Role of the key."""
    owner: Name | None = None
    """Owner of the key; the name of the key if it is null."""
    expires_in_days: Annotated[int, Field(ge=1, le=MAX_KEY_DAYS, strict=True)] | None = None
    """Days after which the key is refused; it never expires if this and `expires_at` are null."""
    expires_at: UtcTime | None = None
    """Time from which on the key is refused, with its zone."""


class KeyView(schemas.KeyView, frozen=True):
    """A key, without its secret."""

    role: Role
    """Role of the key."""


class CreatedKey(KeyView, frozen=True):
    """A key just created; `key` is its secret, which is shown only this once."""

    key: str
    """Secret of the key, which no other answer shows."""


class NewLink(Body):
    """A sign-in link to be created."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "viewer", "minutes": 60}]})

    role: Role | None = None
    """Role of the session; the sender's role if null."""
    owner: Name | None = None
    """Owner that the session acts for; the sender's owner if null."""
    minutes: Annotated[int, Field(ge=1, le=MAX_LINK_MINUTES, strict=True)] = 10
    """Minutes within which the link works."""


class CreatedLink(schemas.LoginLink, frozen=True):
    """A sign-in link just created: `URL of the service/signin#token=…`, which works once."""

    role: Role
    """Role of the session."""


class SignIn(Body):
    """An API key, or the token of a sign-in link: one of the two."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"key": "dlrm_0123456789012345678901234567890123456789012"}]}
    )

    key: Secret | None = None
    """API key; null with a token."""
    token: Secret | None = None
    """Token of a sign-in link; null with a key."""
