"""The current time, everywhere in UTC and by the clock of the database, which all processes of a service share.

From one comparison with that clock to the next, time goes on by the monotonic clock of this machine. So if somebody
sets a clock or a machine sleeps, a comparison shows a jump, and jumps do not count as time passed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

MIN_JUMP = timedelta(seconds=1)
"""Smallest jump that is reported: clocks that are kept right drift by milliseconds from one comparison to the next."""


def read_clock() -> datetime:
    """Return the time by the clock of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Comparison:
    """Reading of the database's clock at a time of the monotonic clock."""

    time: datetime
    monotonic: float
    jump: timedelta
    """Time by which the clock was set since the last comparison, negative for backwards; 0 if it was not."""


_last: Comparison | None = None


def now() -> datetime:
    """Return the time by the clock of the database, as it was at the last comparison; before the first one, by the
    clock of this machine."""
    if _last is None:
        return read_clock()
    return _last.time + timedelta(seconds=time.monotonic() - _last.monotonic)


def compare_clock(read: Callable[[], datetime]) -> Comparison:
    """Compare `now` with the clock of the database, which `read` returns; `follow_clock` has `now` follow it."""
    before = now()
    found = read()
    monotonic, after = time.monotonic(), now()
    # An answer may be late, so that the clock was read at any time between.
    jump = found - min(max(found, before), after)
    is_jump = _last is not None and abs(jump) >= MIN_JUMP
    return Comparison(found, monotonic, jump if is_jump else timedelta(0))


def follow_clock(comparison: Comparison) -> None:
    """Have `now` follow the clock of the database from a comparison on."""
    global _last  # noqa: PLW0603
    _last = comparison
