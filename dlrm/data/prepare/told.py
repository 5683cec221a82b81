"""What a preparation says while it runs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moved:
    """It has come further."""

    done_fraction: float
    """Of the whole preparation, 0 to 1."""
    message: str
    """What it does, how fast, how long it will take, such as `reading: 1,200,000 rows, 310,000 rows/s, 12 s left`."""


@dataclass(frozen=True)
class Noted:
    """Something worth keeping, such as bad rows that were left out."""

    name: str
    """A short word such as `bad_row`."""
    message: str


Tell = Callable[[Moved | Noted], None]
