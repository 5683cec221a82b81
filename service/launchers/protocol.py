"""Interface of all launchers."""

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from pathlib import Path
from typing import Literal, Protocol

from dlrm.config import FieldError, KubernetesConfig
from dlrm.record import CheckpointReport, Outcome, RankEnd, RunDirectory
from service.reasons import Reason

LogSource = int | Literal["launch"]
"""Source of a log: a rank, or the launch process, which is the parent of the ranks."""


@dataclass(frozen=True)
class Capacity:
    """Cores, memory and GPUs: all of a machine, the free ones, or a job's need of one machine."""

    num_cores: int
    memory_bytes: int
    num_gpus: int

    def minus(self, other: "Capacity") -> "Capacity":
        """Subtract `other` from each resource; the result is at least 0."""
        return self.combine(other, lambda own, taken: max(0, own - taken))

    def plus(self, other: "Capacity") -> "Capacity":
        return self.combine(other, operator.add)

    def combine(self, other: "Capacity", compute: Callable[[int, int], int]) -> "Capacity":
        """Compute each resource from the two amounts of it."""
        return Capacity(
            compute(self.num_cores, other.num_cores),
            compute(self.memory_bytes, other.memory_bytes),
            compute(self.num_gpus, other.num_gpus),
        )

    def times(self, number: int) -> "Capacity":
        """Multiply each resource, as for `number` machines."""
        return Capacity(self.num_cores * number, self.memory_bytes * number, self.num_gpus * number)

    def has_room_for(self, demand: "Capacity") -> bool:
        """Whether no resource of `demand` exceeds this capacity."""
        return (
            demand.num_cores <= self.num_cores
            and demand.memory_bytes <= self.memory_bytes
            and demand.num_gpus <= self.num_gpus
        )


UNLIMITED = Capacity(2**31 - 1, 2**62, 2**31 - 1)
"""Capacity that stands for an unknown one: a job fits it, and something else decides when it starts."""


MAX_NODES = 200
"""Number of machines of one launcher that are listed by name."""


@dataclass(frozen=True)
class NamedCapacity:
    """A machine and what jobs may occupy of it."""

    name: str
    capacity: Capacity


@dataclass(frozen=True)
class LauncherCapacity:
    """Resources that the jobs of one launcher may occupy."""

    total: Capacity
    """Sum over all machines."""
    node: Capacity
    """Most of each resource that one machine has."""
    is_fixed: bool = True
    """Whether that stays: a job that does not fit now never will. Nodes of a cluster come and go."""
    machines: tuple[Capacity, ...] = ()
    """Machine kinds that no other kind dominates in every resource; empty: one kind, `node`."""
    nodes: tuple[NamedCapacity, ...] = ()
    """Machines by name, at most `MAX_NODES` of them; empty: one machine, or none is known by name."""

    @property
    def kinds(self) -> tuple[Capacity, ...]:
        return self.machines or (self.node,)


@dataclass(frozen=True)
class FilePlaces:
    """Places of files, as the attempts of a launcher see them."""

    runs_directory: Path
    """Parent of the run directories."""
    prepared_directory: str
    """Directory of prepared rows, which jobs share."""
    data_roots: Sequence[str]
    """Directories and URIs under which data must be."""


@dataclass(frozen=True)
class Demand:
    """Resources that an attempt occupies: `node` on each of `num_nodes` machines."""

    node: Capacity
    num_nodes: int = 1
    """Number of machines; the largest one where the job leaves a range."""
    min_nodes: int = 1
    """Smallest number of machines with which the attempt begins."""

    @property
    def total(self) -> Capacity:
        """Resources on all machines together."""
        return self.node.times(self.num_nodes)

    @property
    def least(self) -> Capacity:
        """Resources with which the attempt begins at least."""
        return self.node.times(self.min_nodes)


NOTHING = Demand(Capacity(0, 0, 0))
"""Demand of an attempt if only its name is known."""


@dataclass(frozen=True)
class LaunchName:
    """Name of one attempt, under which launchers find what belongs to it."""

    job_id: str
    attempt: int
    """Number of the attempt, counted from 1."""


NO_OPTIONS = KubernetesConfig()


@dataclass(frozen=True)
class Launch:
    """One attempt of one job, with all that a launcher needs to start it and to find it again."""

    name: LaunchName
    run_directory: RunDirectory
    demand: Demand
    launcher: str = "local"
    """Name of the launcher that starts it."""
    node: str | None = None
    """Machine that the attempt was started on; None before its start."""
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs of the machine that the attempt has for itself."""
    options: KubernetesConfig = NO_OPTIONS
    """Placement that the job asks for, on a cluster."""
    deadline_at: datetime | None = None
    """Time at which the service ends the attempt; None: never."""
    priority: int = 0
    """Priority of the job, for a launcher whose cluster has a queue of its own."""

    @property
    def attempt(self) -> int:
        return self.name.attempt


@dataclass(frozen=True)
class LaunchFiles:
    """Files that an attempt starts with."""

    document: str
    """Resolved document as JSON, for a run that has none yet: a later attempt goes on with its run's."""
    push_target: str
    """Address and token to push reports with, as JSON; secret."""


class LaunchPhase(Enum):
    ABSENT = auto()
    """Not started, as far as the launcher can see."""
    PENDING = auto()
    """Accepted, but without a process yet, for example while a machine is looked for."""
    ALIVE = auto()
    ENDED = auto()
    UNSEEN = auto()
    """Not to be seen at present, since it is on another machine: nothing is known, and nothing is to be done."""


@dataclass(frozen=True)
class LaunchStatus:
    """State of an attempt as the launcher observes it."""

    phase: LaunchPhase
    reason: Reason | None = None
    """Reason of the phase, which a job then has too; None if the phase explains itself."""
    message: str = ""
    """Explanation of the phase, such as why an attempt is pending."""
    node: str | None = None
    """Machine of the attempt; None if it has none yet."""
    memory_bytes: int = 0
    """Bytes of memory in use by all processes of the attempt; up to what it asks for, perhaps an upper bound."""
    exit_code: int | None = None
    """Exit code of the launch process; None while it is alive, or where it ended unobserved."""
    rank_ends: tuple[RankEnd, ...] = ()
    """Ends of the ranks that failed, as far as they are known."""
    outcome: Outcome | None = None
    """Outcome of an attempt that has ended, as far as the launcher itself has seen it, such as in a container's last
    message; what the run has written or reported counts before."""
    last_log_line: str = ""
    """Last line of the log of the launch process, as far as the launcher has seen it."""
    model_path: str | None = None
    """Directory or URI of the model that the attempt has left, seen as `outcome` is."""
    checkpoint: CheckpointReport | None = None
    """Newest checkpoint that the attempt has left, seen as `outcome` is."""


@dataclass(frozen=True)
class LogName:
    """Name of a log of an attempt."""

    source: LogSource
    node: int = 0
    """Number of the machine of a launch process; 0 for ranks, whose numbers say enough."""


@dataclass(frozen=True)
class LogPart:
    """A part of a log.

    It begins at byte `offset` and ends before byte `next_offset`; `is_at_end` is whether the log had no more when it
    was read.
    """

    text: str
    offset: int
    next_offset: int
    is_at_end: bool


@dataclass(frozen=True)
class LogRange:
    """Range of a log: `limit_bytes` bytes from byte `offset` on, or the last `tail_lines` lines within that limit.

    before: byte that the last lines are before; the end of the log if None.
    """

    offset: int = 0
    limit_bytes: int = 65_536
    tail_lines: int | None = None
    before: int | None = None


class LaunchError(Exception):
    """Failure to start an attempt; the message says why."""

    def __init__(self, message: str, reason: Reason = Reason.LAUNCH_FAILED) -> None:
        """Keep `reason`, which the attempt has from then on."""
        super().__init__(message)
        self.reason = reason


class Launcher(Protocol):
    """Interface that starts, observes and stops attempts.

    Every method may be called again without harm, and none waits: what takes time is asked for, and seen by a later
    call. A launcher calls `on_change`, which it gets at its creation, when the end of a process should be looked at.
    """

    @property
    def node(self) -> str | None:
        """Machine on which this process starts attempts; None if the launcher finds one for each."""
        return None

    @property
    def ingest_url(self) -> str:
        """Address at which attempts reach the service."""
        ...

    @property
    def places(self) -> FilePlaces: ...

    @property
    def shares_files(self) -> bool:
        """Whether this service sees the run directories of the attempts, with their logs, spools and checkpoints.

        Otherwise all of this reaches it as reports.
        """
        return False

    def describe_place(self, run_directory: RunDirectory) -> str:
        """Describe where people find the files of a run: a path, a URI, or a directory of a volume."""
        ...

    def find_image(self, options: KubernetesConfig) -> str | None:  # noqa: ARG002
        """Return the container image of attempts with these options; None if they run in none."""
        return None

    def list_faults(self, placement: KubernetesConfig) -> Sequence[FieldError]:  # noqa: ARG002
        """List what a job asks for in `resources.kubernetes` and may not have; empty if it may have all."""
        return ()

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        """Start an attempt; harmless if it runs already: its token is the one in `files` from then on.

        Raises LaunchError.
        """

    def describe(self, launch: Launch) -> LaunchStatus: ...

    def list(self) -> Collection[Launch]:
        """List everything of this service that has processes, whether the database knows of it or not."""
        return []

    def stop(self, launch: Launch) -> None:
        """Ask an attempt to save a checkpoint and end."""

    def kill(self, launch: Launch) -> bool:
        """Kill all processes of an attempt; return whether there were none any more."""
        ...

    def delete(self, launch: Launch) -> None:
        """Forget an ended attempt; only its files remain."""

    def close(self) -> None:
        """End the threads of this launcher; attempts run on."""

    def capacity(self) -> LauncherCapacity | None:
        """Return all resources that jobs may occupy; None if nobody knows, and something else decides."""
        ...
