"""Keys as the API receives and returns them."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from service.keys.roles import Role


class NewKey(BaseModel):
    """A key to be created."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
    role: Role


class KeyView(BaseModel):
    """A key, without its secret."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    role: Role
    created_at: datetime


class CreatedKey(KeyView):
    """A key just created; `key` is its secret, which is shown only this once."""

    key: str


class KeyList(BaseModel):
    items: list[KeyView]


class SignIn(BaseModel):
    """The token of a sign-in link."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, StringConstraints(min_length=1, max_length=200)]
