"""Outcomes of attempts whose ranks wrote none."""

import signal
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dlrm.record import AttemptDirectory, EndReason, Outcome, RankEnd
from hostinfo.heartbeat import SilentRank
from hostinfo.stop_signals import name_signal

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

SAME_MOMENT_SECONDS = 1.0
"""Seconds within which failures may be observed in a different order from the one in which they happened."""


def make_stopped_outcome(message: str) -> Outcome:
    """Return the outcome of a stop on request before there was anything to save."""
    return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message=message)


def make_silent_outcome(silent: SilentRank) -> Outcome:
    """Return the outcome of an attempt whose rank was killed because it gave no sign of life."""
    message = f"rank {silent.rank}{silent.describe()}"
    return Outcome(state="failed", reason=EndReason.PEER_SILENT, message=message, rank=silent.rank)


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


def describe_exit(exit_code: int) -> str:
    """Describe how a process ended, to follow the name of the process in a message."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}; see its log"
    hint = "; often the kernel's out-of-memory killer" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {name_signal(-exit_code)}{hint}"


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
    error_file = attempt.rank_error(rank)
    # The file is empty where the disk was full.
    if exit_code >= 0 and error_file.exists() and (error := error_file.read_text()):
        return f"ended with exit code {exit_code}: {error}"
    return describe_exit(exit_code)
