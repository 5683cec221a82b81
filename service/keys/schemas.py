"""Keys, sign-in links and sessions as the API receives and returns them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from service import schemas
from service.access.principal import Role
from service.http.query import UtcTime

MAX_KEY_DAYS = 3650
"""Longest time until the expiry of a key, in days."""
MAX_LINK_MINUTES = 24 * 60
"""Longest time until a sign-in link expires, in minutes."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
Secret = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class NewKey(BaseModel):
    """A key to be created."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    role: Role
    owner: Name | None = None
    """Owner of the key; the name of the key where it is null."""
    expires_in_days: Annotated[int, Field(ge=1, le=MAX_KEY_DAYS, strict=True)] | None = None
    expires_at: UtcTime | None = None


class KeyView(schemas.KeyView, frozen=True):
    """A key, without its secret."""

    role: Role


class CreatedKey(KeyView, frozen=True):
    """A key just created; `key` is its secret, which is shown only this once."""

    key: str


class NewLink(BaseModel):
    """A sign-in link to be created."""

    model_config = ConfigDict(extra="forbid")

    role: Role | None = None
    """Role of the session; the sender's role if null."""
    owner: Name | None = None
    """Owner that the session acts for; the sender's owner if null."""
    minutes: Annotated[int, Field(ge=1, le=MAX_LINK_MINUTES, strict=True)] = 10


class CreatedLink(schemas.LoginLink, frozen=True):
    """A sign-in link just created: `URL of the service/signin#token=…`, which works once."""

    role: Role


class SignIn(BaseModel):
    """An API key, or the token of a sign-in link: one of the two."""

    model_config = ConfigDict(extra="forbid")

    key: Secret | None = None
    token: Secret | None = None
