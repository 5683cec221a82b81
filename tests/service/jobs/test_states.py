import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.record import EndReason
from service.reasons import Reason
from service.store.states import ENDED, HOLDING, TRANSITIONS, WATCHED, JobState, TransitionError, check_transition

states = st.sampled_from(JobState)


@given(states, states)
def test_a_change_is_allowed_exactly_where_the_table_has_it(from_state: JobState, to_state: JobState) -> None:
    if to_state in TRANSITIONS[from_state]:
        check_transition(from_state, to_state)
    else:
        with pytest.raises(TransitionError, match=str(to_state)):
            check_transition(from_state, to_state)


@given(st.data())
def test_any_walk_from_queued_can_still_reach_an_end(data: st.DataObject) -> None:
    state = JobState.QUEUED
    for _ in range(data.draw(st.integers(0, 20))):
        if state in ENDED:
            break
        state = data.draw(st.sampled_from(sorted(TRANSITIONS[state])))
    reachable = {state}
    while True:
        further = reachable.union(*(TRANSITIONS[following] for following in reachable))
        if further == reachable:
            break
        reachable = further
    assert reachable & ENDED


def test_every_state_has_its_row_and_an_ended_job_never_changes() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED} == ENDED
    assert not WATCHED & ENDED
    assert HOLDING < WATCHED


@given(states)
def test_whatever_has_not_ended_can_be_cancelled_or_is_being_cancelled(state: JobState) -> None:
    can_be_cancelled = TRANSITIONS[state] & {JobState.CANCELLED, JobState.CANCELLING}
    assert bool(can_be_cancelled) == (state not in ENDED)


def test_every_reason_of_the_trainer_is_a_reason_of_the_service() -> None:
    assert {reason.value for reason in EndReason} <= {reason.value for reason in Reason}
