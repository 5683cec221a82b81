"""Speed, time by part and memory of a training step: `python -m benchmarks.step`.

Makes the same steps as `dlrm train`, on random rows, with each rank in its own process. Rows are drawn before: a run
reads the next batches while it trains. With `--device cuda` they are on the GPU, and clocks stop when it is done.

  python -m benchmarks.step --device cuda --batch 65536 --chunk 65536 --optimizer lamb --variance-reduction default
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from itertools import islice

import torch.distributed as dist

from benchmarks.devices import measure_peak, synchronize
from benchmarks.our_steps import OurSteps
from benchmarks.training import RATES, REDUCTIONS, Shape, add_shape_options, run_on_ranks
from sharding.comm.collectives import all_gather_object, broadcast_from_rank0
from sharding.comm.process_groups import Ranks

NUM_WARM, MIN_STEPS = 3, 2
NUM_BATCHES = 3
"""Batches that steps use in turn: as many as a run has on a GPU at once."""


@dataclass(frozen=True)
class StepMeasurement:
    """Speed, time and memory of a sequence of steps."""

    samples_per_second: float
    step_seconds: dict[str, float]
    """Seconds of one step, by part; the mean over all ranks."""
    peak_memory_bytes: int
    """Peak bytes of the rank that took most, as in `PeakMemory.own_bytes`."""
    peak_mapped_bytes: int
    """Peak bytes as in `PeakMemory.mapped_bytes`."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shape_options(parser)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration, in which at least 2 steps are made")
    parser.add_argument(
        "--variance-reduction",
        choices=list(REDUCTIONS),
        default="off",
        help="off: no moments either; default: moments of an eighth of the samples; exact: of all; groups: of 8 groups",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    arguments = parser.parse_args()
    shape = Shape.from_arguments(arguments).with_reduction(arguments.variance_reduction)
    if fault := shape.find_fault():
        print(fault, file=sys.stderr)  # noqa: T201
        return 2
    run_on_ranks(shape.world_size, shape.device, run_rank, shape, arguments.seconds, arguments.json)
    return 0


def run_rank(ranks: Ranks, shape: Shape, seconds: float, is_json: bool) -> None:
    batches = list(islice(shape.draw_batches(ranks.device), NUM_BATCHES))
    steps = OurSteps(shape.build_parts(ranks), batches, RATES)
    measured = _measure(steps, shape, ranks, seconds)
    steps.close()
    if ranks.rank == 0:
        print(json.dumps(asdict(measured)) if is_json else _format_table(measured, shape), flush=True)  # noqa: T201


def _measure(steps: OurSteps, shape: Shape, ranks: Ranks, seconds: float) -> StepMeasurement:
    """Make steps for about `seconds`, the same number on all ranks, and measure them. Collective."""
    steps.make(NUM_WARM)
    pace = _time_steps(steps, 1, ranks)
    num_steps = broadcast_from_rank0(ranks, max(MIN_STEPS, math.ceil(seconds / pace)))
    total_seconds = _time_steps(steps, num_steps, ranks)
    by_part = steps.part_seconds()
    gathered = all_gather_object(ranks.background_group, (by_part, measure_peak(ranks.device)))
    return StepMeasurement(
        samples_per_second=shape.batch_size * num_steps / total_seconds,
        step_seconds={part: sum(parts[part] for parts, _ in gathered) / len(gathered) for part in by_part},
        peak_memory_bytes=max(memory.own_bytes for _, memory in gathered),
        peak_mapped_bytes=max(memory.mapped_bytes for _, memory in gathered),
    )


def _time_steps(steps: OurSteps, num_steps: int, ranks: Ranks) -> float:
    """Return the seconds of several steps, from when every rank begins to when this one is done. Collective."""
    synchronize(ranks.device)
    dist.barrier(ranks.dense_group)
    started = time.perf_counter()
    steps.make(num_steps)
    synchronize(ranks.device)
    return time.perf_counter() - started


def _format_table(measured: StepMeasurement, shape: Shape) -> str:
    step = shape.batch_size / measured.samples_per_second
    parts = {**measured.step_seconds, "rest": step - sum(measured.step_seconds.values())}
    peak, mapped = measured.peak_memory_bytes / 1e9, measured.peak_mapped_bytes / 1e9
    memory = (
        f"peak memory of a rank: {peak:.2f} GB without its libraries' files; {mapped:.2f} GB with memory that ranks "
        "share counted in full on each"
    )
    if shape.device == "cuda":
        memory = f"peak memory of a GPU: {peak:.2f} GB of tensors, {mapped:.2f} GB that torch has reserved for them"
    return "\n".join(
        [
            f"{shape.batch_size:,} samples per step, W = {shape.world_size}, variance reduction {shape.reduction}:",
            f"{measured.samples_per_second:,.0f} samples/s, {1e3 * step:,.1f} ms per step",
            *(f"  {part:<14} {1e3 * seconds:10,.2f} ms {seconds / step:6.1%}" for part, seconds in parts.items()),
            memory,
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
