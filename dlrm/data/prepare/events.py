"""Messages that a preparation reports while it runs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """Report of progress."""

    done_fraction: float
    """Finished share of the whole preparation, 0 to 1."""
    message: str
    """Phase, speed and estimated time left, such as `reading: 1,200,000 rows, 310,000 rows/s, 12 s left`."""


@dataclass(frozen=True)
class NoteEvent:
    """Report of an event to be recorded, such as bad rows that were left out."""

    name: str
    """Short name of the kind of event, such as `bad_row`."""
    message: str


OnEvent = Callable[[ProgressEvent | NoteEvent], None]
