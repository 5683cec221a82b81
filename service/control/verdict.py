"""Decision about a job after the end of an attempt: a pure function of the observed facts."""

from dataclasses import dataclass

from dlrm.record import EXIT_BAD_INPUT, EndReason, Outcome
from hostinfo.stop_signals import name_signal
from service.control.restart_policy import UNCOUNTED
from service.launchers.protocol import LaunchStatus
from service.reasons import Reason
from service.store.states import AttemptState, JobState

RETRIED = (
    {Reason(reason.value) for reason in EndReason if reason.is_retried}
    # Stopped from outside the service, such as by a shutdown of the machine.
    | {Reason.STOP_REQUESTED, Reason.LAUNCH_FAILED}
    # Taken away by a cluster.
    | {Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_LOST, Reason.LOST}
)
"""Reasons after which a new attempt may succeed."""
HINTS = frozenset({Reason.LOST, Reason.WORKER_CRASHED})
"""Reasons of a launcher that count only if the run itself has left no outcome."""


@dataclass(frozen=True)
class ExitObservation:
    """Observed facts about an attempt that has ended."""

    job_state: JobState
    end: LaunchStatus
    """End of its processes. Its reason is the launcher's, such as an eviction; None if the program itself has chosen to
    end."""
    stop_reason: Reason | None
    """Reason for which the service itself stopped or killed the attempt; None if it did not."""
    stop_message: str
    num_restarts_left: int
    has_progressed: bool
    """Whether the attempt has saved a checkpoint of a later step than it began at."""


@dataclass(frozen=True)
class Verdict:
    """New states of an attempt and its job, with the reason."""

    attempt_state: AttemptState
    job_state: JobState
    reason: Reason
    message: str


def decide(observation: ExitObservation) -> Verdict:
    """Decide the new states of an attempt and its job.

    A success counts, whatever was requested meanwhile; otherwise the request of a user comes before the cause of a
    failure.
    """
    outcome = observation.end.outcome
    if outcome is not None and outcome.state == "succeeded":
        reason = Reason(outcome.reason.value)
        return Verdict(AttemptState.SUCCEEDED, JobState.SUCCEEDED, reason, outcome.message)
    is_stopped = outcome is not None and outcome.state == "stopped"
    attempt_state = AttemptState.STOPPED if is_stopped else AttemptState.FAILED
    if observation.job_state is JobState.CANCELLING:
        return Verdict(attempt_state, JobState.CANCELLED, Reason.USER_CANCELLED, observation.stop_message)
    if _is_paused(observation):
        return Verdict(attempt_state, JobState.PAUSED, Reason.USER_PAUSED, observation.stop_message)
    reason, message = _find_cause(observation)
    if reason in UNCOUNTED or (_may_go_better(reason, observation) and observation.num_restarts_left > 0):
        # A job that was to pause continues only when a user resumes it.
        next_state = JobState.PAUSED if observation.job_state is JobState.PAUSING else JobState.RECOVERING
        return Verdict(attempt_state, next_state, reason, message)
    return Verdict(attempt_state, JobState.FAILED, reason, message)


def _may_go_better(reason: Reason, observation: ExitObservation) -> bool:
    """Whether another attempt may end differently."""
    if reason is Reason.OUT_OF_MEMORY and observation.end.reason is reason:
        # Of a single process that it kills, the kernel gives no reason, and that is retried too. What has trained for
        # a while fits, but for a moment that may not come again; what never got so far would end at the same place.
        return observation.has_progressed
    return reason in RETRIED


def _is_paused(observation: ExitObservation) -> bool:
    """Whether the attempt ended because of a pause: by itself as requested, or killed after the grace period."""
    if observation.job_state is not JobState.PAUSING or observation.stop_reason not in (None, Reason.USER_PAUSED):
        return False
    if observation.end.outcome is not None:
        return observation.end.outcome.state == "stopped"
    return observation.stop_reason is Reason.USER_PAUSED


def _find_cause(observation: ExitObservation) -> tuple[Reason, str]:
    if observation.stop_reason not in (None, Reason.USER_PAUSED):
        return observation.stop_reason, observation.stop_message
    end, outcome, seen = observation.end, observation.end.outcome, observation.end.reason
    if seen is not None and (outcome is None or seen not in HINTS):
        # The run knows at most that it was stopped, or has lost a peer.
        said = outcome.message if outcome is not None and outcome.state == "failed" else end.last_log_line
        return seen, "; ".join(filter(None, (end.message, said)))
    if outcome is not None:
        return Reason(outcome.reason.value), f"{_name_rank(outcome)}{outcome.message}"
    log_hint = f"; its last log line: {end.last_log_line}" if end.last_log_line else ""
    reason = Reason.BAD_INPUT if end.exit_code == EXIT_BAD_INPUT else Reason.WORKER_CRASHED
    return reason, f"the launch process {_describe_exit(end.exit_code)} and left no outcome{log_hint}"


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended with an exit code that the service could not see"
    if exit_code < 0:
        return f"was killed by {name_signal(-exit_code)}"
    return f"ended with exit code {exit_code}"


def _name_rank(outcome: Outcome) -> str:
    """Name the rank of an outcome, to stand before its message; empty if that names it."""
    if outcome.rank is None or f"rank {outcome.rank} " in outcome.message:
        return ""
    return f"rank {outcome.rank}: "
