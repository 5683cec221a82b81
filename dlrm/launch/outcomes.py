"""Outcomes of attempts whose ranks have left none."""

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dlrm.record import AttemptDirectory, EndReason, Outcome

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

SAME_MOMENT_SECONDS = 1.0
"""Seconds within which failures may be observed in a different order from the one in which they happened."""


def stopped(message: str) -> Outcome:
    """Return the outcome of a stop on request before there was anything to save."""
    return Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, message=message)


def outcome_of_failures(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> Outcome:
    """Return the outcome where ranks died without writing one, or where none failed and none wrote one."""
    if not failures:
        message = "every rank ended well, and none wrote an outcome"
        return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)
    rank = _first_failed(attempt, failures)
    message = _what_was_seen(attempt, rank, failures[rank].exitcode)
    return Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message=message)


def how_it_ended(exit_code: int) -> str:
    """Describe how a process ended, to follow the name of the process in a message."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}: its log tells more"
    hint = "; often the kernel's out-of-memory killer" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-exit_code).name}{hint}"


def _first_failed(attempt: AttemptDirectory, failures: "Mapping[int, ProcessFailure]") -> int:
    """Return the rank that failed first.

    A rank that only lost the others does not count as long as another one failed; of several at the same moment, one
    that a signal killed is preferred.
    """
    causes = [rank for rank in failures if not attempt.rank_error(rank).exists()] or list(failures)
    first = min(failures[rank].timestamp for rank in causes)
    early = [rank for rank in causes if failures[rank].timestamp <= first + SAME_MOMENT_SECONDS]
    return min(early, key=lambda rank: (failures[rank].exitcode >= 0, failures[rank].timestamp))


def _what_was_seen(attempt: AttemptDirectory, rank: int, exit_code: int) -> str:
    said = attempt.rank_error(rank)
    # The file is empty where the disk was full.
    if exit_code >= 0 and said.exists() and (error := said.read_text()):
        return f"rank {rank} ended with exit code {exit_code}: {error}"
    return f"rank {rank} {how_it_ended(exit_code)}"
