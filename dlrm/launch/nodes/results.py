"""The outcome of an attempt on several nodes, decided from what each of them saw."""

import time
from collections.abc import Mapping

from dlrm.launch.nodes.group import LostNode
from dlrm.launch.nodes.state import NodeResult, NodeState
from dlrm.record import EndReason, Outcome, RankEnd


def has_failed(state: NodeState) -> bool:
    """Whether the node's part of the attempt has ended without success."""
    return state.result is not None and state.result.outcome is not None


def make_result(outcome: Outcome | None, *, is_cause: bool = True) -> NodeResult:
    """Make the result of a node that ends now. is_cause: whether something went wrong on this node itself."""
    return NodeResult(outcome=outcome, is_cause=is_cause, ended_at=time.time())


def decide_outcome(states: Mapping[int, NodeState], lost: LostNode | None) -> Outcome:
    """Decide the outcome if no rank has written one.

    A node on which something went wrong comes before one that is lost, and that before those that ended because
    another node did; among equals the one that failed first.
    """
    results = {node: state.result for node, state in states.items() if state.result is not None}
    causes = _order_failed({node: result for node, result in results.items() if result.is_cause})
    if causes:
        return _name_node(states, *causes[0])
    if lost is not None:
        return make_lost_outcome(lost)
    consequences = _order_failed(results)
    if consequences:
        return _name_node(states, *consequences[0])
    message = "all ranks ended with exit code 0, but none wrote an outcome"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def list_all_rank_ends(states: Mapping[int, NodeState]) -> list[RankEnd]:
    """List the ends of the ranks that failed on all nodes, in the order of their ranks."""
    ends = [end for state in states.values() if state.result is not None for end in state.result.rank_ends]
    return sorted(ends, key=lambda end: end.rank)


def make_lost_outcome(lost: LostNode) -> Outcome:
    """Return the outcome of an attempt that has lost a node."""
    return Outcome(state="failed", reason=EndReason.PEER_SILENT, message=lost.describe())


def _order_failed(results: Mapping[int, NodeResult]) -> list[tuple[int, Outcome]]:
    """List the outcomes of the nodes that failed, the first one first."""
    failed = [(result.ended_at, node, result.outcome) for node, result in results.items()]
    return [(node, outcome) for _, node, outcome in sorted(failed, key=lambda item: item[:2]) if outcome is not None]


def _name_node(states: Mapping[int, NodeState], node: int, outcome: Outcome) -> Outcome:
    if outcome.state != "failed" or len(states) == 1:
        return outcome
    return outcome.model_copy(update={"message": f"node {node} ({states[node].host}): {outcome.message}"[:2000]})
