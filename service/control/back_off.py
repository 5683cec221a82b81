"""How long a job waits before it is started again: longer every time, until it gets further."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        num_doublings = min(_num_in_a_row(attempts) - 1, MAX_DOUBLINGS)
        return min(self.max_delay_seconds, self.delay_seconds * 2.0**num_doublings)


def _num_in_a_row(attempts: Sequence[Attempt]) -> int:
    """The attempts that came no further, back to the last one that did, which begins a row."""
    progressed = (number for number, attempt in enumerate(reversed(attempts), start=1) if has_got_further(attempt))
    return next(progressed, len(attempts))


def has_got_further(attempt: Attempt) -> bool:
    """Whether an attempt that has ended leaves more than it began with: a checkpoint of a later step."""
    return attempt.saved_step is not None and attempt.saved_step > (attempt.start_step or 0)
