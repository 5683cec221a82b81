"""Names of things: a prefix and a ULID, so that ids sort by the time they were made."""

import re
from typing import Literal

from ulid import ULID


def new_id(prefix: Literal["job", "att", "key"]) -> str:
    return f"{prefix}_{ULID()}"


def is_id(text: str, prefix: Literal["job", "att", "key"]) -> bool:
    """Whether `text` could be the name of such a thing."""
    return re.fullmatch(rf"{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}", text) is not None
