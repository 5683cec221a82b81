"""What a checkpoint costs a run: seconds training waits, seconds it is slowed, and what a resume takes.

`python -m benchmarks.checkpoint`: trains 26 tables of 64 columns and the default perceptrons on random ids on two
ranks, one thread each, and saves behind the training as a run does. The share is of a run that saves every 600 s, the
default.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dlrm.build import Parts, build_parts, plan_tables
from dlrm.checkpoint.find import newest_sound
from dlrm.checkpoint.label import Label
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.state import TrainingState
from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data.rows import DataSchema, Feature
from dlrm.device_batch import DeviceBatch
from dlrm.optimizers import StepRates
from dlrm.progress import Progress
from dlrm.record import AttemptDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from sharding.agree import Wishes
from sharding.ranks import Ranks, make_ranks

NUM_TABLES, NUM_DENSE, WORLD_SIZE = 26, 13, 2
DEFAULT_INTERVAL_SECONDS = 600
RATES = StepRates(0.0005, 0.02)


@dataclass(frozen=True)
class Shape:
    """What is trained."""

    rows_per_table: int
    batch_size: int
    num_rounds: int
    has_room: bool

    @property
    def job(self) -> ResolvedJob:
        document = {
            "data": {"format": "synthetic"},
            "batch": {"global_size": self.batch_size},
            "model": {"embedding_dim": 64, "bottom_mlp": [512, 256, 64], "top_mlp": [512, 256, 1]},
            "precision": "bf16",
            "resources": {"workers_per_node": WORLD_SIZE, "memory": "20GiB"},
        }
        return resolve(parse_job(document))

    @property
    def schema(self) -> DataSchema:
        return DataSchema(NUM_DENSE, tuple(Feature(f"C{n}", self.rows_per_table) for n in range(NUM_TABLES)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=150_000, help="rows of each of 26 tables; 150,000 are 1.0 GB in all"
    )
    parser.add_argument("--batch", type=int, default=32_768, help="samples of a step over all ranks")
    parser.add_argument("--rounds", type=int, default=3, help="checkpoints that are measured")
    parser.add_argument("--no-room", action="store_true", help="as where memory has no room for a copy: training waits")
    parser.add_argument("--directory", type=Path, help="where they are written; a temporary directory by default")
    arguments = parser.parse_args()
    shape = Shape(arguments.rows, arguments.batch, arguments.rounds, not arguments.no_room)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        mp.spawn(run_rank, (shape, Path(directory)), nprocs=WORLD_SIZE)  # pyright: ignore[reportPrivateImportUsage]


def run_rank(rank: int, shape: Shape, directory: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = f"file://{directory}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORLD_SIZE)
    ranks = make_ranks(torch.device("cpu"))
    parts = _parts(shape, ranks)
    state = TrainingState(parts.model, parts.tables, parts.optimizer, parts.reduction, ranks)
    label = Label.of(shape.job, data_checksum=None)
    run = RunDirectory(directory)
    reporter = Reporter(run.attempt(1), rank)
    memory_bytes = shape.job.job.resources.memory if shape.has_room else 0
    settings = SaveSettings(every_seconds=1e9, num_kept=1, memory_bytes=memory_bytes)
    progress = Progress(num_steps=1000)
    with Saver(run, state, label, ranks, reporter, settings) as saver:
        usual = [_timed_step(parts, shape, saver)[0] for _ in range(8)][3:]
        lines: list[str] = []
        for _ in range(shape.num_rounds):
            progress.step += 1
            saver.save_behind(progress)
            during: list[float] = []
            is_written = False
            while not is_written:
                seconds, is_written = _timed_step(parts, shape, saver)
                during.append(seconds)
            usual += [_timed_step(parts, shape, saver)[0] for _ in range(3)]
            lines.append(_line(run.attempt(1), usual, during) if rank == 0 else "")
        took = _timed_resume(run, state, label, ranks, reporter)
    if rank == 0:
        _print(lines, took)
    dist.destroy_process_group()


def _parts(shape: Shape, ranks: Ranks) -> Parts:
    plan = plan_tables(shape.job, shape.schema)
    return build_parts(shape.job, shape.schema, plan, ranks, mean_train_weight=1.0)


def _timed_step(parts: Parts, shape: Shape, saver: Saver) -> tuple[float, bool]:
    """Seconds of one more step, and whether no rank was writing any more when it began."""
    share = shape.batch_size // WORLD_SIZE
    ids = torch.randint(0, shape.rows_per_table, (NUM_TABLES * share,))
    lengths = torch.ones(NUM_TABLES * share, dtype=torch.int32)
    labels = (torch.rand(share) < 0.25).float()
    ones = torch.ones(share)
    batch = DeviceBatch(0, torch.rand(share, NUM_DENSE), ids, lengths, labels, ones, ones, shape.batch_size)
    started = time.monotonic()
    result = parts.step(batch, RATES, Wishes(is_ready_to_save=saver.is_idle))
    return time.monotonic() - started, result.is_save_due


def _line(attempt: AttemptDirectory, usual: list[float], during: list[float]) -> str:
    told = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    saved = [report for report in told if isinstance(report, EventReport) and report.name == "checkpoint_saved"][-1]
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


def _timed_resume(
    run: RunDirectory, state: TrainingState, label: Label, ranks: Ranks, reporter: Reporter
) -> tuple[float, float]:
    """Seconds to compare the newest checkpoint with its checksums, and to read it."""
    started = time.monotonic()
    found = newest_sound(run.checkpoints, label, ranks, reporter)
    assert found is not None, "one was just written"
    verified = time.monotonic()
    state.restore(found.path, WORLD_SIZE)
    return verified - started, time.monotonic() - verified


def _print(lines: list[str], resume_seconds: tuple[float, float]) -> None:
    head = "MB | step, s | training waits, s | written in, s | steps beside it slower by, s | share of 600 s"
    print(f"| {head} |\n|{'---|' * 6}")  # noqa: T201
    print("\n".join(lines))  # noqa: T201
    print(f"resume: {resume_seconds[0]:.1f} s to check, {resume_seconds[1]:.1f} s to read")  # noqa: T201


if __name__ == "__main__":
    main()
