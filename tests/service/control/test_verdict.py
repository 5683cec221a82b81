from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.record import EXIT_BAD_INPUT, EndReason, Outcome
from service.control.verdict import RETRIED, ExitObservation, decide
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason
from service.store.states import ENDED, HOLDING, JobState

END_FIELDS = {field.name for field in fields(LaunchStatus)}


def vary(observation: ExitObservation, **changes: Any) -> ExitObservation:
    """Return an observation with other fields, of its own or of the end."""
    end = {name: changes.pop(name) for name in END_FIELDS & changes.keys()}
    return replace(observation, end=replace(observation.end, **end), **changes)


CRASHED = ExitObservation(
    job_state=JobState.RUNNING,
    end=LaunchStatus(LaunchPhase.ENDED, exit_code=3, last_log_line="KeyError: 'day'"),
    stop_reason=None,
    stop_message="",
    num_restarts_left=2,
    has_progressed=False,
)
EVICTED = vary(CRASHED, reason=Reason.EVICTED, message="pod-0 was evicted")
KILLED = vary(CRASHED, reason=Reason.OUT_OF_MEMORY, has_progressed=True)
PAUSED = vary(CRASHED, job_state=JobState.PAUSING, stop_reason=Reason.USER_PAUSED)
FAILED = Outcome(state="failed", reason=EndReason.BAD_INPUT, message="line 3: 39 columns", rank=1)
DIVERGED = Outcome(state="failed", reason=EndReason.DIVERGED)
LOST = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="rank 1 was killed by SIGKILL")
IN_USE = Outcome(state="failed", reason=EndReason.RUN_IN_USE, message="in use by process 7 on far, since 10:00")
STOPPED = Outcome(state="stopped", reason=EndReason.STOP_REQUESTED)
DONE = Outcome(state="succeeded", reason=EndReason.COMPLETED)


@pytest.mark.parametrize(
    ("observation", "job_state", "reason"),
    [
        (vary(CRASHED, outcome=DONE), JobState.SUCCEEDED, Reason.COMPLETED),
        (vary(CRASHED, outcome=DONE, job_state=JobState.CANCELLING), JobState.SUCCEEDED, Reason.COMPLETED),
        (vary(CRASHED, outcome=STOPPED, job_state=JobState.CANCELLING), JobState.CANCELLED, Reason.USER_CANCELLED),
        (vary(CRASHED, job_state=JobState.CANCELLING), JobState.CANCELLED, Reason.USER_CANCELLED),
        (vary(CRASHED, outcome=FAILED), JobState.FAILED, Reason.BAD_INPUT),
        (vary(CRASHED, outcome=DIVERGED), JobState.FAILED, Reason.DIVERGED),
        (vary(CRASHED, exit_code=EXIT_BAD_INPUT), JobState.FAILED, Reason.BAD_INPUT),
        # What the cluster did counts before what the run knows of it, but not before its success.
        (vary(EVICTED, outcome=None), JobState.RECOVERING, Reason.EVICTED),
        (vary(EVICTED, outcome=STOPPED, num_restarts_left=0), JobState.RECOVERING, Reason.EVICTED),
        (vary(EVICTED, outcome=LOST), JobState.RECOVERING, Reason.EVICTED),
        (vary(EVICTED, outcome=DONE), JobState.SUCCEEDED, Reason.COMPLETED),
        (vary(EVICTED, job_state=JobState.CANCELLING), JobState.CANCELLED, Reason.USER_CANCELLED),
        (vary(EVICTED, reason=Reason.OUT_OF_MEMORY), JobState.FAILED, Reason.OUT_OF_MEMORY),
        # What has trained for a while may go on, what has not would end at the same place.
        (KILLED, JobState.RECOVERING, Reason.OUT_OF_MEMORY),
        (vary(KILLED, outcome=LOST), JobState.RECOVERING, Reason.OUT_OF_MEMORY),
        (vary(KILLED, num_restarts_left=0), JobState.FAILED, Reason.OUT_OF_MEMORY),
        (
            vary(KILLED, stop_reason=Reason.OUT_OF_MEMORY, reason=None),
            JobState.FAILED,
            Reason.OUT_OF_MEMORY,
        ),
        (vary(EVICTED, reason=Reason.IMAGE_PULL), JobState.FAILED, Reason.IMAGE_PULL),
        (vary(EVICTED, reason=Reason.LOST), JobState.RECOVERING, Reason.LOST),
        (vary(EVICTED, reason=Reason.LOST, outcome=FAILED), JobState.FAILED, Reason.BAD_INPUT),
        (vary(CRASHED, outcome=LOST), JobState.RECOVERING, Reason.WORKER_CRASHED),
        (vary(CRASHED, outcome=LOST, num_restarts_left=0), JobState.FAILED, Reason.WORKER_CRASHED),
        (vary(CRASHED, outcome=IN_USE, num_restarts_left=0), JobState.RECOVERING, Reason.RUN_IN_USE),
        (CRASHED, JobState.RECOVERING, Reason.WORKER_CRASHED),
        (vary(CRASHED, exit_code=None), JobState.RECOVERING, Reason.WORKER_CRASHED),
        (vary(CRASHED, outcome=STOPPED), JobState.RECOVERING, Reason.STOP_REQUESTED),
        (vary(CRASHED, outcome=STOPPED, num_restarts_left=0), JobState.RECOVERING, Reason.STOP_REQUESTED),
        (
            vary(CRASHED, outcome=STOPPED, stop_reason=Reason.DEADLINE_EXCEEDED),
            JobState.FAILED,
            Reason.DEADLINE_EXCEEDED,
        ),
        (vary(CRASHED, stop_reason=Reason.OUT_OF_MEMORY), JobState.FAILED, Reason.OUT_OF_MEMORY),
        (vary(CRASHED, num_restarts_left=0), JobState.FAILED, Reason.WORKER_CRASHED),
        (vary(PAUSED, outcome=STOPPED), JobState.PAUSED, Reason.USER_PAUSED),
        (vary(PAUSED, outcome=STOPPED, num_restarts_left=0), JobState.PAUSED, Reason.USER_PAUSED),
        (vary(PAUSED, outcome=DONE), JobState.SUCCEEDED, Reason.COMPLETED),
        (PAUSED, JobState.PAUSED, Reason.USER_PAUSED),
        (vary(PAUSED, outcome=LOST), JobState.PAUSED, Reason.WORKER_CRASHED),
        (vary(PAUSED, stop_reason=None), JobState.PAUSED, Reason.WORKER_CRASHED),
        (vary(PAUSED, stop_reason=None, outcome=STOPPED), JobState.PAUSED, Reason.USER_PAUSED),
        (vary(PAUSED, outcome=LOST, num_restarts_left=0), JobState.FAILED, Reason.WORKER_CRASHED),
        (vary(PAUSED, outcome=DIVERGED), JobState.FAILED, Reason.DIVERGED),
        (vary(PAUSED, stop_reason=Reason.OUT_OF_MEMORY), JobState.FAILED, Reason.OUT_OF_MEMORY),
        (
            vary(PAUSED, outcome=STOPPED, stop_reason=Reason.DEADLINE_EXCEEDED),
            JobState.FAILED,
            Reason.DEADLINE_EXCEEDED,
        ),
        (vary(PAUSED, outcome=STOPPED, job_state=JobState.CANCELLING), JobState.CANCELLED, Reason.USER_CANCELLED),
    ],
)
def test_what_an_end_means(observation: ExitObservation, job_state: JobState, reason: Reason) -> None:
    verdict = decide(observation)
    assert (verdict.job_state, verdict.reason) == (job_state, reason)


def test_the_message_names_the_rank_or_what_was_said_last() -> None:
    assert decide(vary(CRASHED, outcome=FAILED)).message == "rank 1: line 3: 39 columns"
    killed = LOST.model_copy(update={"rank": 1})
    assert decide(vary(CRASHED, outcome=killed)).message == "rank 1 was killed by SIGKILL"
    assert "exit code 3" in decide(CRASHED).message
    assert "KeyError: 'day'" in decide(CRASHED).message
    assert "was killed by SIGKILL and left no outcome" in decide(vary(CRASHED, exit_code=-9)).message
    # A real-time signal has no name.
    assert "was killed by signal 35 and left" in decide(vary(CRASHED, exit_code=-35)).message
    assert "exit code that the service could not see" in decide(vary(CRASHED, exit_code=None)).message


@given(
    st.sampled_from(sorted(HOLDING)),
    st.sampled_from([None, DONE, STOPPED, FAILED, DIVERGED, LOST]),
    st.sampled_from([None, Reason.DEADLINE_EXCEEDED, Reason.OUT_OF_MEMORY, Reason.USER_PAUSED]),
    st.integers(-1, 3),
)
def test_every_end_leads_on_and_only_what_may_go_better_is_retried(
    job_state: JobState, outcome: Outcome | None, stop_reason: Reason | None, num_restarts_left: int
) -> None:
    verdict = decide(
        vary(
            CRASHED,
            job_state=job_state,
            outcome=outcome,
            stop_reason=stop_reason,
            num_restarts_left=num_restarts_left,
        )
    )
    if verdict.job_state is JobState.RECOVERING:
        assert verdict.reason in RETRIED
        assert num_restarts_left > 0 or verdict.reason is Reason.STOP_REQUESTED
        assert job_state not in {JobState.CANCELLING, JobState.PAUSING}
    else:
        assert verdict.job_state in ENDED | ({JobState.PAUSED} if job_state is JobState.PAUSING else set())
