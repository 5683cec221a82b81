"""Ids of jobs, attempts, API keys and requests: a prefix and a ULID, so that they sort by creation time."""

import re
from datetime import datetime
from typing import Literal

from ulid import ULID

NUM_TIME_LETTERS = 10
"""Letters at the beginning of a ULID that are its time; the others are random."""


def new_id(prefix: Literal["job", "att", "key", "req", "svc", "sch", "whk", "msg"]) -> str:
    return f"{prefix}_{ULID()}"


def get_first_id(prefix: Literal["job", "att", "key"], time: datetime) -> str:
    """Return a text that sorts after all ids made before the millisecond of `time`, and before those made later."""
    return f"{prefix}_{str(ULID.from_timestamp(time.timestamp()))[:NUM_TIME_LETTERS]}"


def is_id(text: str, prefix: Literal["job", "att", "key"]) -> bool:
    """Whether `text` has the form of an id with this prefix; the object need not exist."""
    return re.fullmatch(rf"{prefix}_[0-9A-HJKMNP-TV-Z]{{26}}", text) is not None
