"""Which restarts count against `max_restarts`: those in a row that got no further."""

from collections.abc import Sequence

from service.jobs.models import Attempt
from service.jobs.reasons import Reason

UNCOUNTED = frozenset({Reason.STOP_REQUESTED, Reason.USER_PAUSED})
"""Ends that tell nothing against a job: a user paused it, or somebody else stopped it, such as a machine that shuts
down, and it left a checkpoint. `max_restarts` bounds what goes wrong; these are bounded by the back-off and by
`deadline_seconds`."""


def num_restarts_left(attempts: Sequence[Attempt], max_restarts: int) -> int:
    """Of a job whose last attempt, of all there were, has ended: restarts it may still have, that end's included.

    A job that gets further starts anew with all of them, and still comes to an end: it has so many steps and no more.
    """
    return max_restarts - sum(attempt.reason not in UNCOUNTED for attempt in row_of(attempts)[:-1])


def row_of(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """The last attempts that came no further, behind the last one that did, which begins the row."""
    numbers = range(len(attempts))
    return attempts[next((number for number in reversed(numbers) if _has_got_further(attempts[number])), 0) :]


def _has_got_further(attempt: Attempt) -> bool:
    """Whether an attempt that has ended leaves more than it began with: a checkpoint of a later step."""
    return attempt.saved_step is not None and attempt.saved_step > (attempt.start_step or 0)
