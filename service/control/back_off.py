"""How long a job waits before it is started again: longer every time, until it gets further."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.control.restarts import row_of
from service.jobs.models import Attempt

MAX_DOUBLINGS = 32
"""More lead beyond any longest delay, and at last beyond what a float holds."""


@dataclass(frozen=True)
class BackOff:
    """Exponential: `delay_seconds`, doubled with every restart in a row, at most `max_delay_seconds`."""

    delay_seconds: float
    max_delay_seconds: float

    def seconds_after(self, attempts: Sequence[Attempt]) -> float:
        """What to wait now that the last of `attempts`, all there were, has ended."""
        num_doublings = min(len(row_of(attempts)) - 1, MAX_DOUBLINGS)
        return min(self.max_delay_seconds, self.delay_seconds * 2.0**num_doublings)
