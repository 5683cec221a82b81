"""What every launcher can do."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, Protocol

from dlrm.record import RunDirectory

LogSource = int | Literal["launch"]
"""A rank, or the launch process above the ranks."""


@dataclass(frozen=True)
class Capacity:
    """Cores, memory and GPUs: what there is, what is free, or what a job asks for."""

    num_cores: int
    memory_bytes: int
    num_gpus: int

    def minus(self, other: "Capacity") -> "Capacity":
        """What is left; never below nothing."""
        return Capacity(
            max(0, self.num_cores - other.num_cores),
            max(0, self.memory_bytes - other.memory_bytes),
            max(0, self.num_gpus - other.num_gpus),
        )


@dataclass(frozen=True)
class Launch:
    """One attempt of one job, as launchers name it."""

    run_directory: RunDirectory
    attempt: int
    """Counted from 1."""


class LaunchPhase(Enum):
    ABSENT = auto()
    """Never started, as far as anything shows."""
    ALIVE = auto()
    ENDED = auto()


@dataclass(frozen=True)
class LaunchStatus:
    """What a launcher sees of an attempt."""

    phase: LaunchPhase
    memory_bytes: int = 0
    """In use by all its processes."""
    exit_code: int | None = None
    """Null where nobody was there to see it."""


@dataclass(frozen=True)
class LogPart:
    """A part of a log. `next_offset` counts bytes; `is_at_end`: there was no more when it was read."""

    text: str
    next_offset: int
    is_at_end: bool


@dataclass(frozen=True)
class LogRange:
    """Which part of a log: `limit_bytes` from `offset`, or its last `tail_lines` within so many bytes."""

    offset: int = 0
    limit_bytes: int = 65_536
    tail_lines: int | None = None


class LaunchError(Exception):
    """An attempt could not be started; the message says why."""


class Launcher(Protocol):
    """Starts attempts and sees to them. Every method may be called again without harm."""

    def start(self, launch: Launch) -> None:
        """Start an attempt whose run directory holds `spec.json`. Raises LaunchError."""
        ...

    def describe(self, launch: Launch) -> LaunchStatus: ...

    def stop(self, launch: Launch) -> None:
        """Ask an attempt to end after a checkpoint."""
        ...

    def kill(self, launch: Launch) -> bool:
        """End all processes of an attempt; whether none is left."""
        ...

    def delete(self, launch: Launch) -> None:
        """Leave nothing of an ended attempt but its files."""
        ...

    def logs(self, launch: Launch, source: LogSource, part: LogRange) -> LogPart: ...

    def capacity(self) -> Capacity:
        """All that jobs may occupy."""
        ...
