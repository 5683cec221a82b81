"""Cost of a checkpoint: seconds of waiting and of slower training, and seconds of a resume.

`python -m benchmarks.checkpoint`: trains 26 tables of 64 columns and the default MLPs on random ids on two ranks, one
thread each, and saves while training continues, as a run does. The share of time is for a run that saves every 600 s,
the default.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.training import RATES, Shape, run_on_ranks
from dlrm.checkpoint.find import find_verified_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.state import TrainingState
from dlrm.record import AttemptDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.batch import DeviceBatch
from dlrm.train.build import Parts
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote

WORLD_SIZE = 2
DEFAULT_INTERVAL_SECONDS = 600
MEMORY_BYTES = 20 * 2**30
"""Bytes of memory that suffice for a copy of the state in addition to a step."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=150_000, help="rows of each of 26 tables; 150,000 are 1.0 GB in all"
    )
    parser.add_argument("--batch", type=int, default=32_768, help="samples of a step over all ranks")
    parser.add_argument("--rounds", type=int, default=3, help="number of checkpoints that are measured")
    parser.add_argument("--no-room", action="store_true", help="measure without memory for a copy: training waits")
    parser.add_argument("--directory", type=Path, help="directory of the checkpoints (default: a temporary directory)")
    arguments = parser.parse_args()
    shape = Shape(
        batch_size=arguments.batch,
        world_size=WORLD_SIZE,
        num_tables=26,
        rows_per_table=arguments.rows,
        embedding_dim=64,
        architecture="dlrm",
        precision="bf16",
        exchange_dtype="fp32",
        ids="uniform",
    )
    memory_bytes = 0 if arguments.no_room else MEMORY_BYTES
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        run_on_ranks(WORLD_SIZE, "cpu", run_rank, shape, arguments.rounds, memory_bytes, Path(directory))


def run_rank(ranks: Ranks, shape: Shape, num_rounds: int, memory_bytes: int, directory: Path) -> None:
    parts, batches = shape.build_parts(ranks), shape.draw_batches()
    state = parts.make_state(ranks)
    identity = RunIdentity.from_job(shape.job, data_checksum=None)
    run = RunDirectory(directory)
    reporter = Reporter(run.attempt(1), ranks.rank)
    settings = SaveSettings(every_seconds=1e9, num_kept=1, memory_bytes=memory_bytes, ranks_per_node=ranks.world_size)
    progress = RunProgress(num_steps=1000)
    with Saver(run, state, identity, ranks, reporter, settings) as saver:
        usual = [_time_step(parts, batches, saver)[0] for _ in range(8)][3:]
        lines: list[str] = []
        for _ in range(num_rounds):
            progress.step += 1
            saver.save_async(progress)
            during: list[float] = []
            is_written = False
            while not is_written:
                seconds, is_written = _time_step(parts, batches, saver)
                during.append(seconds)
            usual += [_time_step(parts, batches, saver)[0] for _ in range(3)]
            lines.append(_format_line(run.attempt(1), usual, during) if ranks.rank == 0 else "")
        resume_seconds = _time_resume(run, state, identity, ranks, reporter)
    if ranks.rank == 0:
        _print(lines, resume_seconds)


def _time_step(parts: Parts, batches: Iterator[DeviceBatch], saver: Saver) -> tuple[float, bool]:
    """Make one more step; return its seconds, and whether all ranks had finished writing when it began."""
    batch = next(batches)
    started = time.monotonic()
    result = parts.step(batch, RATES, StepVote(is_ready_to_save=saver.is_idle))
    return time.monotonic() - started, result.is_save_due


def _format_line(attempt: AttemptDirectory, usual: list[float], during: list[float]) -> str:
    reports = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    saved = [report for report in reports if isinstance(report, EventReport) and report.name == "checkpoint_saved"][-1]
    stall, step = saved.details["stall_seconds"], statistics.median(usual)
    slowed = max(0.0, sum(during) - len(during) * step)
    figures = [
        f"{saved.details['num_bytes'] / 1e6:,.0f}",
        f"{step:.2f}",
        f"{stall:.2f}",
        f"{saved.details['seconds']:.1f}",
        f"{slowed:.1f} over {len(during)}",
        f"{(stall + slowed) / DEFAULT_INTERVAL_SECONDS:.2%}",
    ]
    return "| " + " | ".join(figures) + " |"


def _time_resume(
    run: RunDirectory, state: TrainingState, identity: RunIdentity, ranks: Ranks, reporter: Reporter
) -> tuple[float, float]:
    """Measure the seconds to compare the newest checkpoint with its checksums, and the seconds to read it."""
    started = time.monotonic()
    found = find_verified_checkpoint(run.checkpoints, identity, ranks, reporter)
    assert found is not None, "one was just written"
    verified = time.monotonic()
    state.restore(found.path, WORLD_SIZE)
    return verified - started, time.monotonic() - verified


def _print(lines: list[str], resume_seconds: tuple[float, float]) -> None:
    head = "MB | step, s | training waits, s | written in, s | steps slowed down by, s | share of 600 s"
    print(f"| {head} |\n|{'---|' * 6}")  # noqa: T201
    print("\n".join(lines))  # noqa: T201
    print(f"resume: {resume_seconds[0]:.1f} s to check, {resume_seconds[1]:.1f} s to read")  # noqa: T201


if __name__ == "__main__":
    main()
