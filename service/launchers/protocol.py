"""Interface of all launchers."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, Protocol

from dlrm.record import RunDirectory

LogSource = int | Literal["launch"]
"""Source of a log: a rank, or the launch process, which is the parent of the ranks."""


@dataclass(frozen=True)
class Capacity:
    """Cores, memory and GPUs: all of a machine, those that are free, or those that a job needs."""

    num_cores: int
    memory_bytes: int
    num_gpus: int

    def minus(self, other: "Capacity") -> "Capacity":
        """Subtract `other` from each resource; the result is at least 0."""
        return Capacity(
            max(0, self.num_cores - other.num_cores),
            max(0, self.memory_bytes - other.memory_bytes),
            max(0, self.num_gpus - other.num_gpus),
        )


@dataclass(frozen=True)
class Launch:
    """One attempt of one job, as launchers identify it."""

    run_directory: RunDirectory
    attempt: int
    """Number of the attempt, counted from 1."""


class LaunchPhase(Enum):
    ABSENT = auto()
    """Not started, as far as the launcher can see."""
    ALIVE = auto()
    ENDED = auto()


@dataclass(frozen=True)
class LaunchStatus:
    """State of an attempt as the launcher observes it."""

    phase: LaunchPhase
    memory_bytes: int = 0
    """Bytes of memory in use by all processes of the attempt."""
    exit_code: int | None = None
    """Exit code of the launch process; None while it is alive, or where it ended unobserved."""


@dataclass(frozen=True)
class LogPart:
    """A part of a log.

    `next_offset` is the offset in bytes after it; `is_at_end` is whether the log had no more when it was read.
    """

    text: str
    next_offset: int
    is_at_end: bool


@dataclass(frozen=True)
class LogRange:
    """Range of a log: `limit_bytes` bytes from byte `offset` on, or the last `tail_lines` lines within that limit."""

    offset: int = 0
    limit_bytes: int = 65_536
    tail_lines: int | None = None


class LaunchError(Exception):
    """Failure to start an attempt; the message says why."""


class Launcher(Protocol):
    """Interface that starts, observes and stops attempts. Every method may be called again without harm."""

    def start(self, launch: Launch) -> None:
        """Start an attempt whose run directory holds `spec.json`. Raises LaunchError."""
        ...

    def describe(self, launch: Launch) -> LaunchStatus: ...

    def stop(self, launch: Launch) -> None:
        """Ask an attempt to save a checkpoint and end."""
        ...

    def kill(self, launch: Launch) -> bool:
        """Kill all processes of an attempt; return whether none is left."""
        ...

    def delete(self, launch: Launch) -> None:
        """Delete everything of an ended attempt except its files."""
        ...

    def read_log(self, launch: Launch, source: LogSource, part: LogRange) -> LogPart: ...

    def capacity(self) -> Capacity:
        """Return all resources that jobs may occupy."""
        ...
