"""States of jobs and attempts, and the allowed changes of a job's state."""

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
"""States that each state may change to. `QUEUED` changes to `FAILED` where the job no longer fits the machine or its
deadline has passed."""

ENDED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""Final states."""

NOT_ENDED = frozenset(JobState) - ENDED
"""States that are not final."""

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING})
"""States in which a job may have processes, and so holds cores, memory and GPUs."""

WATCHED = HOLDING | {JobState.RECOVERING}
"""States in which the reconciler looks after a job."""


ACTIVE_STATES = frozenset({AttemptState.STARTING, AttemptState.RUNNING})
"""States of an attempt that has not ended."""


class TransitionError(ValueError):
    """Change of state that is not allowed."""


def check_transition(from_state: JobState, to_state: JobState) -> None:
    """Raise TransitionError if `from_state` may not change to `to_state`."""
    if to_state not in TRANSITIONS[from_state]:
        following = ", ".join(sorted(TRANSITIONS[from_state])) or "none, since it is final"
        raise TransitionError(f"the state cannot change from {from_state} to {to_state} (valid: {following})")
