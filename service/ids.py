"""Names of things: a prefix and a ULID, so that ids sort by the time they were made."""

from typing import Literal

from ulid import ULID


def new_id(prefix: Literal["job", "att", "key"]) -> str:
    return f"{prefix}_{ULID()}"
