"""How an attempt ended: `outcome.json` and the exit code of its launch process."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.record.files import write_atomically

EXIT_DONE = 0
EXIT_FAILED = 1
"""Anything that may go better another time."""
EXIT_BAD_INPUT = 64
"""Bad configuration or data: not retried."""
EXIT_STOPPED = 75
"""Stopped on request, after a checkpoint."""

OutcomeState = Literal["succeeded", "stopped", "failed"]


class EndReason(StrEnum):
    """Why an attempt ended."""

    COMPLETED = "completed"
    TARGET_REACHED = "target_reached"
    STOP_REQUESTED = "stop_requested"
    BAD_INPUT = "bad_input"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"

    @property
    def is_retried(self) -> bool:
        """Whether a new attempt may end otherwise; one that is short of memory, or diverges, would again."""
        return self is EndReason.WORKER_CRASHED


class Outcome(BaseModel):
    """The end of one attempt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: OutcomeState
    reason: EndReason
    message: str = ""
    """The first failing rank's error, one line; empty where nothing failed."""
    rank: int | None = None
    """The rank that failed first."""
    step: int | None = None
    """Batches consumed."""
    metrics: dict[str, float | None] = {}
    """Of the last evaluation, and `samples_per_second`."""

    @property
    def exit_code(self) -> int:
        if self.state == "succeeded":
            return EXIT_DONE
        if self.state == "stopped":
            return EXIT_STOPPED
        return EXIT_BAD_INPUT if self.reason is EndReason.BAD_INPUT else EXIT_FAILED

    def write_first(self, path: Path) -> None:
        """Write the outcome to `path`, unless somebody was first: the first to fail tells what went wrong."""
        own = path.with_name(f".{path.name}.{os.getpid()}")
        write_atomically(own, self.model_dump_json(indent=1))
        try:
            os.link(own, path)
        except FileExistsError:
            pass
        finally:
            own.unlink()

    @classmethod
    def read(cls, path: Path) -> "Outcome | None":
        """The outcome at `path`; None where there is none, or none that can be read."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
