"""The outcome of an attempt: `outcome.json`, the exit code of its launch process, and the ends of ranks that failed."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from dlrm.record.files import Record, write_first
from dlrm.record.numbers import Measure

EXIT_DONE = 0
EXIT_FAILED = 1
"""Exit code of a failure that another attempt may avoid."""
EXIT_BAD_INPUT = 64
"""Exit code for bad configuration or data, which is not retried."""
EXIT_STOPPED = 75
"""Exit code of a stop on request: everything trained is in a checkpoint, if a step was made."""

OutcomeState = Literal["succeeded", "stopped", "failed"]


class EndReason(StrEnum):
    """Reason for which an attempt ended."""

    COMPLETED = "completed"
    TARGET_REACHED = "target_reached"
    NO_IMPROVEMENT = "no_improvement"
    STOP_REQUESTED = "stop_requested"
    BAD_INPUT = "bad_input"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"
    PEER_SILENT = "peer_silent"
    """A rank or a node gave no sign of life, or has gone without a word."""
    RUN_IN_USE = "run_in_use"
    """Another launch works on the run, such as one on a machine that was cut off and trains on."""

    @property
    def is_retried(self) -> bool:
        """Whether a new attempt may end differently; a lack of memory or a divergence would recur."""
        return self in (EndReason.WORKER_CRASHED, EndReason.PEER_SILENT, EndReason.RUN_IN_USE)


class Outcome(Record):
    """The outcome of one attempt. It is written once: the first process to fail reports the cause."""

    state: OutcomeState
    reason: EndReason
    message: str = ""
    """Error of the first rank that failed, in one line, or why the run was stopped or has ended early; empty for any
    other end."""
    rank: int | None = None
    """Rank that failed first."""
    step: int | None = None
    """Number of batches consumed."""
    metrics: dict[str, Measure] = Field(default={})
    """Metrics of the last evaluation, `samples_per_second`, and metrics of simple models, such as `lightgbm_auc`."""

    @property
    def exit_code(self) -> int:
        if self.state == "succeeded":
            return EXIT_DONE
        if self.state == "stopped":
            return EXIT_STOPPED
        return EXIT_BAD_INPUT if self.reason is EndReason.BAD_INPUT else EXIT_FAILED

    @classmethod
    def read(cls, path: Path) -> "Outcome | None":
        """Return the outcome at `path`; None if the file is missing or invalid."""
        try:
            return super().read(path)
        except ValidationError:
            return None


class RankEnd(Record, use_attribute_docstrings=True):
    """End of one rank that failed; those that ended only because it did are left out."""

    rank: int
    """Number of the rank."""
    exit_code: int
    """Exit code of the process; a negative one is the number of the signal that killed it."""
    message: str
    """End of the rank in words, with its error where it left one."""


_ENDS = TypeAdapter(list[RankEnd])


def write_rank_ends(path: Path, ends: Sequence[RankEnd]) -> None:
    """Write the ends to `path`, unless another process was first. Raises OSError."""
    write_first(path, _ENDS.dump_json(list(ends), indent=1).decode())


def read_rank_ends(path: Path) -> list[RankEnd]:
    """Read the ends at `path`; none if the file is missing or invalid, as if no rank has failed."""
    try:
        return _ENDS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return []
