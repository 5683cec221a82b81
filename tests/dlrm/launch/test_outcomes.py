"""The outcome of an attempt on several nodes, by what each of them saw."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlrm.launch.nodes.conclusion import settle
from dlrm.launch.nodes.group import LostNode
from dlrm.launch.nodes.state import NodeResult, NodeState
from dlrm.launch.outcomes import decide_outcome, list_all_rank_ends, list_rank_ends, make_failed_outcome
from dlrm.record import AttemptDirectory, EndReason, Outcome, RankEnd, read_rank_ends

CRASH = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="rank 1 was killed by SIGKILL", rank=1)
LOST_PEER = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="rank 0 lost its peers", rank=0)
BAD_INPUT = Outcome(state="failed", reason=EndReason.BAD_INPUT, message="no such file")
STOPPED = Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message="stopped before the ranks were started")
LOST = LostNode(1, "b", "gave no sign of life for 45 s")


def make_state(host: str, outcome: Outcome | None, at: float = 0.0, *, is_cause: bool = True) -> NodeState:
    return NodeState(host=host, result=NodeResult(outcome=outcome, is_cause=is_cause, ended_at=at))


def test_nodes_of_other_versions_know_the_result_of_a_node_as_its_account():
    state = make_state("a", CRASH)
    sent = state.model_dump_json(by_alias=True)
    assert json.loads(sent)["account"]["outcome"]["message"] == CRASH.message
    assert NodeState.model_validate_json(sent) == state


def test_the_node_on_which_something_went_wrong_is_the_cause_though_others_noticed_first():
    states = {0: make_state("a", LOST_PEER, 1.0, is_cause=False), 1: make_state("b", CRASH, 2.0)}
    outcome = decide_outcome(states, None)
    assert outcome.message == "node 1 (b): rank 1 was killed by SIGKILL"
    assert (outcome.reason, outcome.rank) == (EndReason.WORKER_CRASHED, 1)


def test_of_two_causes_the_first_one_counts():
    states = {0: make_state("a", CRASH, 2.0), 1: make_state("b", BAD_INPUT, 1.0)}
    assert decide_outcome(states, None).message == "node 1 (b): no such file"


def test_a_lost_node_is_the_cause_of_ranks_that_lost_their_peers():
    states = {0: make_state("a", LOST_PEER, is_cause=False), 1: NodeState(host="b")}
    outcome = decide_outcome(states, LOST)
    assert (outcome.reason, outcome.message) == (EndReason.PEER_SILENT, "node 1 (b) gave no sign of life for 45 s")


def test_a_fault_of_a_node_counts_before_another_one_that_is_lost_after_it():
    states = {0: make_state("a", CRASH), 1: NodeState(host="b")}
    assert decide_outcome(states, LOST).message.startswith("node 0 (a): rank 1 was killed")


def test_where_nobody_saw_a_cause_the_first_to_lose_its_peers_is_named():
    states = {node: make_state("ab"[node], LOST_PEER, 2.0 - node, is_cause=False) for node in (0, 1)}
    assert decide_outcome(states, None).message == "node 1 (b): rank 0 lost its peers"


def test_a_stop_on_one_node_is_a_stop_of_the_attempt():
    ended = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="node 1 has ended")
    states = {0: make_state("a", ended, is_cause=False), 1: make_state("b", STOPPED)}
    assert decide_outcome(states, None) == STOPPED


def test_ranks_that_all_ended_well_without_an_outcome_are_a_failure():
    outcome = decide_outcome({0: make_state("a", None), 1: make_state("b", None)}, None)
    assert (outcome.state, outcome.message) == ("failed", "all ranks ended with exit code 0, but none wrote an outcome")


def test_a_single_node_is_not_named():
    assert decide_outcome({0: make_state("a", CRASH)}, None) == CRASH


def test_ends_of_ranks_are_collected_from_all_nodes_in_their_order():
    ends = [RankEnd(rank=rank, exit_code=1, message="") for rank in range(4)]
    states = {
        0: NodeState(host="a", result=NodeResult(outcome=CRASH, is_cause=True, ended_at=0, rank_ends=ends[:2])),
        1: NodeState(host="b", result=NodeResult(outcome=CRASH, is_cause=True, ended_at=0, rank_ends=ends[2:])),
        2: NodeState(host="c"),
    }
    assert list_all_rank_ends(states) == ends


def test_a_rank_that_wrote_the_outcome_is_among_the_ends_with_its_error(tmp_path: Path):
    attempt = AttemptDirectory(tmp_path)
    attempt.rank_log(0).parent.mkdir()
    attempt.rank_error(0).write_text("lost its peers")
    written = Outcome(state="failed", reason=EndReason.OUT_OF_MEMORY, message="MemoryError", rank=1)
    written.write_first(attempt.outcome)
    failures: Any = {rank: SimpleNamespace(exitcode=1) for rank in (1, 0)}
    ends = list_rank_ends(attempt, failures)
    assert settle(attempt, CRASH, ends) == written
    assert settle(attempt, CRASH, ends[:1]) == written, "a launch process that comes later changes nothing"
    assert [(end.rank, end.message) for end in read_rank_ends(attempt.rank_ends)] == [
        (0, "ended with exit code 1: lost its peers"),
        (1, "ended with exit code 1: MemoryError"),
    ]


@pytest.mark.parametrize(
    ("ends", "rank"),
    [
        pytest.param({0: (1, 107.0), 1: (1, 100.0), 2: (1, 103.0)}, 1, id="the first of several"),
        pytest.param({0: (1, 100.0), 1: (-9, 100.5), 2: (-9, 103.0)}, 1, id="a signal at the same moment"),
    ],
)
def test_the_rank_that_failed_first_is_named(ends: dict[int, tuple[int, float]], rank: int, tmp_path: Path):
    attempt = AttemptDirectory(tmp_path / "attempt-1")
    attempt.create()
    failures: Any = {
        number: SimpleNamespace(exitcode=code, timestamp=at, pid=number) for number, (code, at) in ends.items()
    }
    assert make_failed_outcome(attempt, failures).rank == rank
