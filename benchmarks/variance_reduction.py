"""Cost of variance reduction, and of other methods, for a step: `python -m benchmarks.variance_reduction`.

Steps without it and with each kind of it take turns in the same processes, on the same batches. Each kind is compared
with the step without it of the same round: the speed of a shared machine varies, but hardly within a round. If both
cores are busy with other work, the CPU time is the figure to trust. With --memory the figure is the largest resident
memory of a rank instead, of each kind in processes of its own.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from itertools import islice

import torch.distributed as dist

from benchmarks.devices import synchronize
from benchmarks.training import METHODS, RATES, Shape, add_shape_options, run_on_ranks
from dlrm.train.batch import DeviceBatch
from dlrm.train.step import TrainingStep
from hostinfo.process_memory import get_peak_memory_bytes
from sharding.comm.process_groups import Ranks

NUM_WARM = 2
WITHOUT, *KINDS = METHODS


@dataclass(frozen=True)
class Seconds:
    """Seconds of one step on one rank."""

    wall: float
    cpu: float
    dense: float
    """Wall seconds of the dense part alone, in which moments are measured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_shape_options(parser)
    parser.add_argument("--pairs", type=int, default=7, help="steps of each kind, and as many without")
    parser.add_argument("--with", dest="kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds to measure")
    parser.add_argument("--memory", action="store_true", help="measure memory and not time")
    arguments = parser.parse_args()
    shape = Shape.from_arguments(arguments)
    if fault := shape.find_fault(*arguments.kinds):
        print(fault, file=sys.stderr)  # noqa: T201
        return 2
    if arguments.memory:
        for kind in (WITHOUT, *arguments.kinds):
            run_on_ranks(shape.world_size, shape.device, run_rank_alone, shape.with_reduction(kind))
    else:
        run_on_ranks(shape.world_size, shape.device, run_rank, shape, arguments.kinds, arguments.pairs)
    return 0


def run_rank_alone(ranks: Ranks, shape: Shape) -> None:
    """Take a few steps, and print the largest resident memory of the first rank."""
    step = shape.build_parts(ranks).step
    for batch in islice(shape.draw_batches(ranks.device), NUM_WARM + 1):
        step(batch, RATES)
    if ranks.rank == 0:
        print(f"{shape.reduction}: {get_peak_memory_bytes() / 2**20:,.0f} MiB", flush=True)  # noqa: T201


def run_rank(ranks: Ranks, shape: Shape, kinds: list[str], num_rounds: int) -> None:
    steps = {kind: shape.with_reduction(kind).build_parts(ranks).step for kind in (WITHOUT, *kinds)}
    rounds: list[dict[str, Seconds]] = []
    for batch in shape.draw_batches(ranks.device):
        if batch.index == NUM_WARM + num_rounds:
            break
        # The order is reversed in every other round, so that it favours no kind.
        order = [*steps] if batch.index % 2 else [*steps][::-1]
        seconds_by_kind = {kind: _time_step(steps[kind], batch, ranks) for kind in order}
        if batch.index >= NUM_WARM:
            rounds.append(seconds_by_kind)
    if ranks.rank == 0:
        print(_format_table(shape, rounds), flush=True)  # noqa: T201


def _time_step(step: TrainingStep, batch: DeviceBatch, ranks: Ranks) -> Seconds:
    step.clock.reset()
    synchronize(ranks.device)
    dist.barrier(ranks.dense_group)
    started, cpu_started = time.perf_counter(), time.process_time()
    step(batch, RATES)
    synchronize(ranks.device)
    return Seconds(time.perf_counter() - started, time.process_time() - cpu_started, step.clock.seconds["dense"])


def _format_table(shape: Shape, rounds: list[dict[str, Seconds]]) -> str:
    """Format the table. rounds: for each round of rank 0, the seconds of one step by kind."""
    head = ["with", "step, s", "ratio, median", "least", "largest", "of CPU time", "of the dense part"]
    lines = [
        f"B = {shape.batch_size:,}, W = {shape.world_size}, {shape.precision}, {len(rounds)} pairs",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
    ]
    for kind in (kind for kind in METHODS if kind in rounds[0]):
        pairs = [(seconds_by_kind[kind], seconds_by_kind[WITHOUT]) for seconds_by_kind in rounds]
        ratios = [ours.wall / base.wall for ours, base in pairs]
        figures = [
            statistics.median(ratios),
            min(ratios),
            max(ratios),
            statistics.median(ours.cpu / base.cpu for ours, base in pairs),
            statistics.median(ours.dense / base.dense for ours, base in pairs),
        ]
        seconds = statistics.median(ours.wall for ours, _ in pairs)
        lines.append(f"| {kind} | {seconds:.2f} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
