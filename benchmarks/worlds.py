"""Training steps in processes of their own, which are idle until a number of steps is requested.

So two kinds of step can take turns on one machine: neither disturbs the other, and both run under the same conditions.
"""

import multiprocessing
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal, Self

import torch
import torch.distributed as dist

from benchmarks.cells import Cell
from benchmarks.devices import measure_peak, synchronize
from benchmarks.our_steps import OurSteps
from benchmarks.torchrec_step import TorchRecStep
from benchmarks.training import RATES, run_on_ranks
from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from sharding.comm.collectives import all_gather_object, broadcast_from_rank0
from sharding.comm.process_groups import Ranks

Engine = Literal["ours", "torchrec", "torchrec_fp16_wire"]
MAX_QUEUED = 8
"""Number of TorchRec's steps after which the host waits for a GPU, so that it does not run ahead without end."""
NUM_WARM = 2
"""Number of warm-up steps, not measured, in which TorchRec's pipeline, data-parallel part and the allocator settle."""


@dataclass(frozen=True)
class Stretch:
    """Measurement of several steps in a row."""

    num_steps: int
    seconds: float
    """Seconds of all these steps, from when every rank begins to when every rank is done."""
    cpu_seconds: float
    """Seconds of CPU time, all ranks together: the figure to trust where the machine is busy with other work."""
    losses: list[float]
    """Mean loss over the global batch of each step, before its update."""
    part_seconds: dict[str, float]
    """Seconds of one step, by part; the mean over all ranks. Empty for TorchRec's step."""
    peak_memory_bytes: int
    """Peak bytes since its start of the rank that took most, as in `PeakMemory.own_bytes`."""
    peak_mapped_bytes: int
    """Peak bytes as in `PeakMemory.mapped_bytes`."""

    @property
    def step_seconds(self) -> float:
        return self.seconds / self.num_steps

    @property
    def cpu_step_seconds(self) -> float:
        return self.cpu_seconds / self.num_steps


class WorldError(Exception):
    """End of a world's processes before they have answered; their own output says why."""


class World:
    """World of W processes that make steps of one kind. A context manager, which ends the processes at its exit."""

    def __init__(self, cell: Cell, engine: Engine, rates: StepRates = RATES) -> None:
        """Start the processes, and make NUM_WARM steps and one more. Raises WorldError if the processes end."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (cell.world_size, cell.device, _serve, cell, engine, rates, theirs)
        self._process = context.Process(target=run_on_ranks, args=arguments)
        self._process.start()
        theirs.close()
        self._engine = engine
        self.losses: list[float] = []
        """Losses of all steps so far."""
        self.measure_stretch(NUM_WARM)
        self.pace_seconds = self.measure_stretch(1).seconds
        """Seconds of one step after the warm-up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()

    def measure_stretch(self, num_steps: int) -> Stretch:
        """Make and measure the next `num_steps` steps. Raises WorldError if the processes end."""
        try:
            self._connection.send(num_steps)
            stretch: Stretch = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise WorldError(f"{self._engine} ended with code {self._process.exitcode}") from error
        self.losses += stretch.losses
        return stretch


class TheirSteps:
    """Steps of TorchRec, one batch after another."""

    def __init__(self, step: TorchRecStep, ranks: Ranks) -> None:
        self._step, self._ranks = step, ranks
        self._losses: list[torch.Tensor] = []

    def make(self, num_steps: int) -> None:
        self._losses = []
        for number in range(num_steps):
            self._losses.append(self._step())
            if number % MAX_QUEUED == MAX_QUEUED - 1:
                synchronize(self._ranks.device)

    def losses(self) -> list[float]:
        """Return the losses as `OurSteps.losses` does. Collective, since a rank knows only the mean of its share."""
        shares = all_gather_object(self._ranks.background_group, [float(loss) for loss in self._losses])
        return [statistics.fmean(losses) for losses in zip(*shares, strict=True)]

    def part_seconds(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Do nothing: TorchRec's pipeline is left as it is."""


def make_steps(
    cell: Cell, engine: Engine, ranks: Ranks, batches: list[DeviceBatch], rates: StepRates
) -> OurSteps | TheirSteps:
    """Build the steps of an engine. Collective."""
    if engine == "ours":
        return OurSteps(cell.shape.build_parts(ranks), batches, rates)
    has_fp16_wire = engine == "torchrec_fp16_wire"
    return TheirSteps(TorchRecStep(cell, ranks, batches, rates, has_fp16_wire=has_fp16_wire), ranks)


def _serve(ranks: Ranks, cell: Cell, engine: Engine, rates: StepRates, connection: Connection) -> None:
    """Make as many steps as each message requests, until the other end of the connection is closed. Collective."""
    steps = make_steps(cell, engine, ranks, cell.draw_batches(ranks.rank, ranks.device), rates)
    while num_steps := broadcast_from_rank0(ranks, _receive(connection) if ranks.rank == 0 else 0):
        stretch = _measure_stretch(steps, num_steps, ranks)
        if ranks.rank == 0:
            connection.send(stretch)
    steps.close()


def _receive(connection: Connection) -> int:
    try:
        return connection.recv()
    except EOFError:
        return 0


def _measure_stretch(steps: OurSteps | TheirSteps, num_steps: int, ranks: Ranks) -> Stretch:
    synchronize(ranks.device)
    dist.barrier(ranks.dense_group)
    started, cpu_started = time.perf_counter(), time.process_time()
    steps.make(num_steps)
    synchronize(ranks.device)
    dist.barrier(ranks.dense_group)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    measurement = (cpu_seconds, steps.part_seconds(), measure_peak(ranks.device))
    cpu, parts, peaks = zip(*all_gather_object(ranks.background_group, measurement), strict=True)
    return Stretch(
        num_steps=num_steps,
        seconds=seconds,
        cpu_seconds=sum(cpu),
        losses=steps.losses(),
        part_seconds={name: statistics.fmean(part[name] for part in parts) for name in parts[0]},
        peak_memory_bytes=max(peak.own_bytes for peak in peaks),
        peak_mapped_bytes=max(peak.mapped_bytes for peak in peaks),
    )
