"""Speed, time by part and memory of a training step: `python -m benchmarks.step`.

Makes the same steps as `dlrm train`, on random rows, with each rank in its own process. The time to make a batch does
not count: a run reads the next batches while it trains.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass

import torch.distributed as dist

from benchmarks.memory import measure_peak_memory
from benchmarks.training import RATES, REDUCTIONS, Shape, add_shape_options, run_on_ranks
from dlrm.config import ConfigError
from dlrm.train.build import Parts
from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote

NUM_WARM, MIN_STEPS = 2, 2


@dataclass(frozen=True)
class StepMeasurement:
    """Speed, time and memory of a sequence of steps."""

    samples_per_second: float
    step_seconds: dict[str, float]
    """Seconds of one step, by part; the mean over all ranks."""
    peak_memory_bytes: int
    """Peak bytes of the rank that took most: anonymous memory, and its share of the memory that ranks share."""
    peak_mapped_bytes: int
    """Peak bytes as in `peak_memory_bytes`, but with shared memory counted in full."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_shape_options(parser)
    parser.add_argument("--seconds", type=float, default=20.0, help="least duration; at least 2 steps are measured")
    parser.add_argument(
        "--variance-reduction",
        choices=list(REDUCTIONS),
        default="off",
        help="off: no moments either; default: moments of an eighth of the samples; exact: of all; groups: of 8 groups",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    arguments = parser.parse_args()
    shape = Shape.from_arguments(arguments).with_reduction(arguments.variance_reduction)
    try:
        _ = shape.job
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    run_on_ranks(shape.world_size, run_rank, shape, arguments.seconds, arguments.json)
    return 0


def run_rank(ranks: Ranks, shape: Shape, seconds: float, is_json: bool) -> None:
    measured = _measure(shape.build_parts(ranks), shape, ranks, seconds)
    if ranks.rank == 0:
        print(json.dumps(asdict(measured)) if is_json else _format_table(measured, shape), flush=True)  # noqa: T201


def _measure(parts: Parts, shape: Shape, ranks: Ranks, seconds: float) -> StepMeasurement:
    """Make steps for at least `seconds`, the same number on all ranks, and measure them. Collective."""
    num_steps, total_seconds = 0, 0.0
    for batch in shape.draw_batches():
        if batch.index == NUM_WARM:
            parts.step.clock.reset()
        dist.barrier(ranks.dense_group)
        is_last = num_steps >= MIN_STEPS - 1 and total_seconds >= seconds
        started = time.perf_counter()
        result = parts.step(batch, RATES, StepVote(is_stop_requested=is_last))
        if batch.index >= NUM_WARM:
            total_seconds += time.perf_counter() - started
            num_steps += 1
        if result.is_stop_requested:
            break
    by_part = {part: total / num_steps for part, total in parts.step.clock.seconds.items()}
    gathered = all_gather_object(ranks.background_group, (by_part, measure_peak_memory()))
    return StepMeasurement(
        samples_per_second=shape.batch_size * num_steps / total_seconds,
        step_seconds={part: sum(parts[part] for parts, _ in gathered) / len(gathered) for part in by_part},
        peak_memory_bytes=max(memory.own_bytes for _, memory in gathered),
        peak_mapped_bytes=max(memory.mapped_bytes for _, memory in gathered),
    )


def _format_table(measured: StepMeasurement, shape: Shape) -> str:
    step = shape.batch_size / measured.samples_per_second
    parts = {**measured.step_seconds, "rest": step - sum(measured.step_seconds.values())}
    return "\n".join(
        [
            f"{shape.batch_size:,} samples per step, W = {shape.world_size}, variance reduction {shape.reduction}:",
            f"{measured.samples_per_second:,.0f} samples/s, {1e3 * step:,.1f} ms per step",
            *(f"  {part:<14} {1e3 * seconds:10,.2f} ms {seconds / step:6.1%}" for part, seconds in parts.items()),
            f"peak memory of a rank: {measured.peak_memory_bytes / 1e9:.2f} GB without its libraries' files; "
            f"{measured.peak_mapped_bytes / 1e9:.2f} GB with memory that ranks share counted in full on each",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
