"""Ids of jobs, attempts, API keys and requests: a prefix and a ULID, so that they sort by creation time."""

import re
from typing import Literal

from ulid import ULID


def new_id(prefix: Literal["job", "att", "key", "req", "svc"]) -> str:
    return f"{prefix}_{ULID()}"


def is_id(text: str, prefix: Literal["job", "att", "key"]) -> bool:
    """Whether `text` has the form of an id with this prefix; the object need not exist."""
    return re.fullmatch(rf"{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}", text) is not None
