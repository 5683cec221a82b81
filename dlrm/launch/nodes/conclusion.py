"""The end of an attempt on several nodes: they wait for each other's results, and node 0 decides the outcome."""

import logging
import time
from collections.abc import Mapping

from dlrm.launch.nodes.group import BEAT_SECONDS, LostNode, NodeGroup
from dlrm.launch.nodes.state import NodeResult, NodeState
from dlrm.launch.outcomes import decide_outcome, list_all_rank_ends
from dlrm.record import AttemptDirectory, Outcome, RankEnd, write_rank_ends

log = logging.getLogger(__name__)

END_SECONDS = 60.0
"""Longest wait for the ends of the others once one has failed; each gives up earlier than that."""
LEAVE_SECONDS = 10.0
"""Longest wait of node 0 for the others to read the outcome; they find it in the run directory too."""


def conclude(group: NodeGroup, attempt: AttemptDirectory, result: NodeResult, timeout_seconds: float) -> Outcome:
    """Report to the others how this node has ended, and return the outcome of the attempt; it is in `attempt` by then.

    timeout_seconds: silence from which on a node counts as lost.
    """
    group.update(phase="ended", result=result)
    try:
        if group.place.node != 0:
            return _await_outcome(group, attempt, timeout_seconds)
        outcome = _collect(group, attempt, timeout_seconds)
        group.update(final=outcome)
        gone = {lost.node for lost in group.list_lost(timeout_seconds)}
        others = [node for node in group.states if node != 0 and node not in gone]
        group.wait_for(lambda states: all(states[node].is_leaving for node in others), LEAVE_SECONDS)
        return outcome
    finally:
        group.leave()


def _collect(group: NodeGroup, attempt: AttemptDirectory, timeout_seconds: float) -> Outcome:
    """Wait on node 0 until every node has ended or is lost, and decide the outcome."""
    lost: list[LostNode] = []

    def have_ended(states: Mapping[int, NodeState]) -> bool:
        gone = {node.node for node in lost}
        return all(states[node].result is not None or node in gone for node in group.members or [])

    give_up_at: float | None = None
    while not group.wait_for(have_ended, BEAT_SECONDS):
        lost = group.list_lost(timeout_seconds)
        if any(node.node == group.place.node for node in lost):
            break
        if give_up_at is None and any(state.has_failed for state in group.states.values()):
            give_up_at = time.monotonic() + END_SECONDS
        if give_up_at is not None and time.monotonic() > give_up_at:
            # They beat and do not end, such as a node with a process that not even SIGKILL ends.
            break
    return settle(attempt, decide_outcome(group.states, lost[0] if lost else None), list_all_rank_ends(group.states))


def _await_outcome(group: NodeGroup, attempt: AttemptDirectory, timeout_seconds: float) -> Outcome:
    """Wait on another node for the outcome that node 0 decides; decide it here where node 0 is lost."""
    while not group.wait_for(lambda states: states[0].final is not None, BEAT_SECONDS):
        if lost := [node for node in group.list_lost(timeout_seconds) if node.node == 0]:
            return settle(attempt, decide_outcome(group.states, lost[0]), list_all_rank_ends(group.states))
    final = group.states[0].final
    assert final is not None, "the wait was for it"
    return final


def settle(attempt: AttemptDirectory, outcome: Outcome, rank_ends: list[RankEnd]) -> Outcome:
    """Write what is known of the end of an attempt, and return its outcome.

    A launch process that was first has written both files; a rank that failed has written the outcome alone.
    """
    if rank_ends and (Outcome.read(attempt.outcome) or outcome).state == "failed":
        try:
            write_rank_ends(attempt.rank_ends, rank_ends)
        except OSError:
            log.exception("the ends of the ranks cannot be written; the outcome names the first one")
    try:
        outcome.write_first(attempt.outcome)
    except OSError:
        log.exception("the outcome cannot be written; only the exit code reports it")
    return Outcome.read(attempt.outcome) or outcome
