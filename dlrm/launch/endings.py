"""How an attempt ended of which no rank has left the outcome."""

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlrm.record import AttemptDirectory, EndReason, Outcome

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

SAME_MOMENT_SECONDS = 1.0
"""Failures so close together may be seen in another order than they happened."""


def stopped(message: str) -> Outcome:
    """On request, before there was anything to keep."""
    return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message=message)


def outcome_of_failures(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> Outcome:
    """Of ranks that died without a word, or of none."""
    if not failures:
        message = "every rank ended well, and none wrote an outcome"
        return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)
    rank = _first_failed(attempt, failures)
    message = _what_was_seen(attempt, rank, failures[rank].exitcode)
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def how_it_ended(exit_code: int) -> str:
    """What is said of a process, behind its name."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}: its log tells more"
    hint = "; often the kernel's out-of-memory killer" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-exit_code).name}{hint}"


def _first_failed(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> int:
    """The rank that failed first: not one that lost the others, as long as another failed; at the same moment, one that
    a signal killed.
    """
    causes = [rank for rank in failures if not attempt.rank_error(rank).exists()] or list(failures)
    first = min(failures[rank].timestamp for rank in causes)
    early = [rank for rank in causes if failures[rank].timestamp <= first + SAME_MOMENT_SECONDS]
    return min(early, key=lambda rank: (failures[rank].exitcode >= 0, failures[rank].timestamp))


def _what_was_seen(attempt: AttemptDirectory, rank: int, exit_code: int) -> str:
    said = attempt.rank_error(rank)
    # It is empty where the disk was full.
    if exit_code >= 0 and said.exists() and (error := said.read_text()):
        return f"rank {rank} ended with exit code {exit_code}: {error}"
    return f"rank {rank} {how_it_ended(exit_code)}"
