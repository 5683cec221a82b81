"""Back-off before a job restarts: longer each time, until the job makes progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.control.restart_policy import get_attempts_since_progress
from service.jobs.models import Attempt

MAX_DOUBLINGS = 32
"""Limit of the exponent: more doublings exceed any maximum delay, and in the end the range of a float."""


@dataclass(frozen=True)
class BackOff:
    """Exponential back-off: `delay_seconds`, doubled with each further restart without progress, up to
    `max_delay_seconds`."""

    delay_seconds: float
    max_delay_seconds: float

    def compute_delay_seconds(self, attempts: Sequence[Attempt]) -> float:
        """Compute the seconds to wait before the next attempt.

        attempts: all attempts of the job so far; the last one has ended.
        """
        num_doublings = min(len(get_attempts_since_progress(attempts)) - 1, MAX_DOUBLINGS)
        return min(self.max_delay_seconds, self.delay_seconds * 2.0**num_doublings)
