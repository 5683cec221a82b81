"""Outcomes of attempts whose ranks wrote none; on several nodes they follow from what each of them saw."""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dlrm.launch.nodes.group import LostNode
from dlrm.launch.nodes.state import NodeResult, NodeState
from dlrm.record import AttemptDirectory, EndReason, Outcome, RankEnd
from hostinfo.child import describe_exit

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

SAME_MOMENT_SECONDS = 1.0
"""Seconds within which the observed order of failures may differ from the true one."""


def make_stopped_outcome(message: str) -> Outcome:
    """Return the outcome of a stop on request before there was anything to save."""
    return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message=message)


def make_failed_outcome(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> Outcome:
    """Return the outcome where ranks died without writing one."""
    rank = _find_first_failed(attempt, failures)
    message = f"rank {rank} {_describe_failure(attempt, rank, failures[rank].exitcode)}"
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message, rank=rank)


def list_rank_ends(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> list[RankEnd]:
    """List how the ranks ended that failed, in the order of their ranks."""
    return [
        RankEnd(rank=rank, exit_code=code, message=_describe_failure(attempt, rank, code))
        for rank, code in sorted((rank, failure.exitcode) for rank, failure in failures.items())
    ]


def has_own_failure(
    attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]", killed: Collection[int]
) -> bool:
    """Whether some rank failed by itself, and not because it lost the other ranks.

    killed: processes that the launch process has killed, once the attempt could not go on.
    """
    return any(
        not attempt.rank_error(rank).exists() and failure.pid not in killed for rank, failure in failures.items()
    )


def make_result(outcome: Outcome | None, *, is_cause: bool = True) -> NodeResult:
    """Make the result of a node that ends now. is_cause: whether something went wrong on this node itself."""
    return NodeResult(outcome=outcome, is_cause=is_cause, ended_at=time.time())


def decide_outcome(states: Mapping[int, NodeState], lost: LostNode | None) -> Outcome:
    """Decide the outcome if no rank has written one.

    Nodes with a fault of their own come first, then a lost node, then nodes that ended because another node did; among
    equals the one that failed first.
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


def _find_first_failed(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> int:
    """Return the rank that failed first.

    A rank that only lost the others does not count as long as another one failed; of several at the same moment, one
    that a signal killed is preferred.
    """
    causes = [rank for rank in failures if not attempt.rank_error(rank).exists()] or list(failures)
    first = min(failures[rank].timestamp for rank in causes)
    early = [rank for rank in causes if failures[rank].timestamp <= first + SAME_MOMENT_SECONDS]
    return min(early, key=lambda rank: (failures[rank].exitcode >= 0, failures[rank].timestamp))


def _describe_failure(attempt: AttemptDirectory, rank: int, exit_code: int) -> str:
    error_file, outcome = attempt.rank_error(rank), Outcome.read(attempt.outcome)
    if outcome is not None and outcome.rank == rank:
        error = outcome.message
    else:
        # The file is empty if the disk was full.
        error = error_file.read_text() if error_file.exists() else ""
    return f"ended with exit code {exit_code}: {error}" if exit_code >= 0 and error else describe_exit(exit_code)


def _order_failed(results: Mapping[int, NodeResult]) -> list[tuple[int, Outcome]]:
    """List the outcomes of the nodes that failed, the first one first."""
    failed = [(result.ended_at, node, result.outcome) for node, result in results.items()]
    return [(node, outcome) for _, node, outcome in sorted(failed, key=lambda item: item[:2]) if outcome is not None]


def _name_node(states: Mapping[int, NodeState], node: int, outcome: Outcome) -> Outcome:
    if outcome.state != "failed" or len(states) == 1:
        return outcome
    return outcome.model_copy(update={"message": f"node {node} ({states[node].host}): {outcome.message}"[:2000]})
