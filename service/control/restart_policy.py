"""Count of the restarts that use up `max_restarts`: consecutive ones without progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.reasons import Reason
from service.store.models import Attempt, Job
from service.times import now

UNCOUNTED = frozenset(
    {
        Reason.STOP_REQUESTED,
        Reason.USER_PAUSED,
        Reason.QUOTA_EXCEEDED,
        Reason.RUN_IN_USE,
        Reason.EVICTED,
        Reason.PREEMPTED,
        Reason.NODE_LOST,
        Reason.LOST,
    }
)
"""Reasons for an end that do not count against a job: a user paused it, it was stopped from outside the service (for
example by a shutdown of the machine) and left a checkpoint, an earlier attempt that was cut off still trains, or its
cluster took its machines away. `max_restarts` limits failures; these ends are limited by the back-off and by
`deadline_seconds`."""


def count_restarts_left(attempts: Sequence[Attempt], max_restarts: int) -> int:
    """Count the restarts left to a job, including the one after the attempt that has just ended.

    attempts: all attempts of the job; the last one has ended. A job that makes progress has all its restarts again. It
    still ends, because its number of steps is finite.
    """
    return max_restarts - sum(attempt.reason not in UNCOUNTED for attempt in get_attempts_since_progress(attempts)[:-1])


def get_attempts_since_progress(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the last attempt that made progress and all later ones; all attempts if none made progress."""
    indices = reversed(range(len(attempts)))
    return attempts[next((index for index in indices if has_progressed(attempts[index])), 0) :]


def has_progressed(attempt: Attempt) -> bool:
    """Whether an attempt that has ended made progress: it saved a checkpoint of a later step than its first."""
    return attempt.saved_step is not None and attempt.saved_step > (attempt.start_step or 0)


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


def is_late(job: Job) -> bool:
    """Whether the deadline of `job` has passed."""
    return job.deadline_at is not None and now() > job.deadline_at
