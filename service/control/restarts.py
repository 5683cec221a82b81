"""Which restarts count against `max_restarts`, and how many are left."""

from collections.abc import Sequence

from service.jobs.models import Attempt
from service.jobs.reasons import Reason

UNCOUNTED = frozenset({Reason.STOP_REQUESTED, Reason.USER_PAUSED})
"""Ends that tell nothing against a job: a user paused it, or somebody else stopped it, such as a machine that shuts
down, and it left a checkpoint. `max_restarts` bounds what goes wrong; these are bounded by the back-off and by
`deadline_seconds`."""


def num_restarts_left(attempts: Sequence[Attempt], max_restarts: int) -> int:
    """Of a job whose last attempt, of all there were, has ended: restarts it may still have, that end's included."""
    return max_restarts - sum(attempt.reason not in UNCOUNTED for attempt in attempts[:-1])
