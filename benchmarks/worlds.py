"""Training steps in processes of their own that stand still until they are asked for some steps.

So two kinds of step can take turns on one machine, neither disturbed by the other and both seeing the same machine.
"""

import multiprocessing
import statistics
import time
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Literal, Self, get_args

import torch
import torch.distributed as dist

from benchmarks.cells import Cell
from benchmarks.memory import peak_memory
from benchmarks.torchrec_step import TorchRecStep
from benchmarks.training import RATES, on_ranks
from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from dlrm.train.build import Parts
from sharding.comm.collectives import all_gather_object, broadcast_from_rank0
from sharding.comm.process_groups import Ranks

Engine = Literal["ours", "torchrec", "torchrec_fp16_wire"]
ENGINES = get_args(Engine)
NUM_WARM = 2
"""Steps that are not measured; TorchRec's pipeline, its data parallel part and the allocator settle within."""


@dataclass(frozen=True)
class Stretch:
    """Some steps in a row."""

    num_steps: int
    seconds: float
    """Of all of them, from when every rank begins to when every rank is done."""
    cpu_seconds: float
    """Of the cores, all ranks together: what to look at where the machine is busy with other work."""
    losses: list[float]
    """Of each step, before its update, over the global batch."""
    part_seconds: dict[str, float]
    """Of one step by part, the mean of all ranks; none for TorchRec's."""
    peak_memory_bytes: int
    """Of the rank that took most since its start: anonymous memory, and its share of the memory that ranks share."""
    peak_mapped_bytes: int
    """The same, where shared memory counts in full on every rank that maps it."""

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.num_steps

    @property
    def cpu_step_seconds(self) -> float:
        return self.cpu_seconds / self.num_steps


class WorldError(Exception):
    """The processes of a world ended; their own output says why."""


class World:
    """W processes that make steps of one kind. A context manager: they end with it."""

    def __init__(self, cell: Cell, engine: Engine, rates: StepRates = RATES) -> None:
        """Starts the processes and makes NUM_WARM steps and one more. Raises WorldError."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (cell.world_size, _serve, cell, engine, rates, theirs)
        self._process = context.Process(target=on_ranks, args=arguments)
        self._process.start()
        theirs.close()
        self._engine = engine
        self.losses: list[float] = []
        """Of all steps so far."""
        self.stretch(NUM_WARM)
        self.pace_seconds = self.stretch(1).seconds
        """Of a step, once it is warm."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()

    def stretch(self, num_steps: int) -> Stretch:
        """The next steps, measured. Raises WorldError."""
        try:
            self._connection.send(num_steps)
            stretch: Stretch = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise WorldError(f"{self._engine} ended with code {self._process.exitcode}") from error
        self.losses += stretch.losses
        return stretch


class OurSteps:
    """Ours, batch by batch."""

    def __init__(self, parts: Parts, batches: list[DeviceBatch], rates: StepRates) -> None:
        self._step, self._batches, self._rates = parts.step, cycle(batches), rates
        self._losses: list[float] = []

    def make(self, num_steps: int) -> None:
        self._step.clock.reset()
        self._losses = [self._step(next(self._batches), self._rates).loss for _ in range(num_steps)]

    def losses(self) -> list[float]:
        """Of the steps of the last `make`, over the global batch."""
        return self._losses

    def part_seconds(self) -> dict[str, float]:
        """Of one of them, on this rank."""
        return {part: seconds / len(self._losses) for part, seconds in self._step.clock.seconds.items()}


class TheirSteps:
    """TorchRec's."""

    def __init__(self, step: TorchRecStep, ranks: Ranks) -> None:
        self._step, self._ranks = step, ranks
        self._losses: list[torch.Tensor] = []

    def make(self, num_steps: int) -> None:
        self._losses = [self._step() for _ in range(num_steps)]

    def losses(self) -> list[float]:
        """As ours; a rank knows the mean of its share."""
        shares = all_gather_object(self._ranks.background_group, [float(loss) for loss in self._losses])
        return [statistics.fmean(losses) for losses in zip(*shares, strict=True)]

    def part_seconds(self) -> dict[str, float]:
        return {}


def make_steps(
    cell: Cell, engine: Engine, ranks: Ranks, batches: list[DeviceBatch], rates: StepRates
) -> OurSteps | TheirSteps:
    """Collective."""
    if engine == "ours":
        return OurSteps(cell.shape.parts(ranks), batches, rates)
    has_fp16_wire = engine == "torchrec_fp16_wire"
    return TheirSteps(TorchRecStep(cell, ranks, batches, rates, has_fp16_wire=has_fp16_wire), ranks)


def _serve(ranks: Ranks, cell: Cell, engine: Engine, rates: StepRates, connection: Connection) -> None:
    """Make as many steps as each message says, until the other end is closed."""
    steps = make_steps(cell, engine, ranks, cell.batches(ranks.rank), rates)
    while num_steps := broadcast_from_rank0(ranks, _received(connection) if ranks.rank == 0 else 0):
        stretch = _stretch(steps, num_steps, ranks)
        if ranks.rank == 0:
            connection.send(stretch)


def _received(connection: Connection) -> int:
    try:
        return connection.recv()
    except EOFError:
        return 0


def _stretch(steps: OurSteps | TheirSteps, num_steps: int, ranks: Ranks) -> Stretch:
    dist.barrier(ranks.dense_group)
    started, cpu_started = time.perf_counter(), time.process_time()
    steps.make(num_steps)
    dist.barrier(ranks.dense_group)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    said = (cpu_seconds, steps.part_seconds(), peak_memory())
    cpu, parts, peaks = zip(*all_gather_object(ranks.background_group, said), strict=True)
    return Stretch(
        num_steps=num_steps,
        seconds=seconds,
        cpu_seconds=sum(cpu),
        losses=steps.losses(),
        part_seconds={name: statistics.fmean(part[name] for part in parts) for name in parts[0]},
        peak_memory_bytes=max(peak.own_bytes for peak in peaks),
        peak_mapped_bytes=max(peak.mapped_bytes for peak in peaks),
    )
