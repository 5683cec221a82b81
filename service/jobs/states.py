"""The states of a job and of an attempt, and which changes there are."""

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    RECOVERING = "RECOVERING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED, JobState.FAILED}),
    JobState.STARTING: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.CANCELLING, JobState.FAILED, JobState.SUCCEEDED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.SUCCEEDED, JobState.FAILED, JobState.PAUSING, JobState.CANCELLING, JobState.RECOVERING}
    ),
    JobState.PAUSING: frozenset(
        {JobState.PAUSED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLING, JobState.RECOVERING}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.RECOVERING: frozenset({JobState.QUEUED, JobState.STARTING, JobState.FAILED, JobState.CANCELLING}),
    JobState.CANCELLING: frozenset({JobState.CANCELLED, JobState.SUCCEEDED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""What each state may change to. `FAILED` out of `QUEUED`: it can never fit any more, or its time is over."""

ENDED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""States that nothing follows."""

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING})
"""States in which a job may have processes, and so holds cores and memory."""

WATCHED = HOLDING | {JobState.RECOVERING}
"""States that the reconciler has to bring further."""


class TransitionError(ValueError):
    """A change of state that does not exist."""


def check_transition(from_state: JobState, to_state: JobState) -> None:
    """Raises TransitionError."""
    if to_state not in TRANSITIONS[from_state]:
        following = ", ".join(sorted(TRANSITIONS[from_state])) or "nothing"
        raise TransitionError(f"{from_state} changes to {following}, not to {to_state}")
