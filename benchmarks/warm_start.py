"""Cost in AUC and saving in rows of daily retraining: a warm start compared with training from scratch.

`python -m benchmarks.warm_start JOB.toml --data FILE.parquet`: cuts the rows of FILE, in order of time, into day 1,
day 2 and the last rows, which no run trains on. Trains the job on one rank, in this process, three seeds each: from
scratch on day 1, on both days and on day 2 alone; and on day 2 from the model of day 1, whose vocabulary grows. Every
finished run is a line of JSON in --results, and is not repeated.
"""

import argparse
import json
import statistics
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from benchmarks.in_process import join_alone
from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data.packed.open import open_packed_meta
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.prepare.fit import open_base
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.record import PreparedData, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks

HELD_OUT_FRACTION, DAY_1_FRACTION = 0.1, 0.8
"""Fraction of all rows held out, and fraction of the other rows in day 1."""
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Method:
    """A method of training a model for the time after day 2."""

    days: tuple[int, ...]
    """Numbers of the days that the model is trained on."""
    is_warm: bool = False
    """Whether training starts from the model of day 1 with the same seed."""
    optimizer_state: bool = False
    rate_factor: float = 1.0
    """Factor on both learning rates of the job."""


METHODS = {
    "day 1 alone": Method((1,)),
    "both days from scratch": Method((1, 2)),
    "both days from scratch, rates x 0.3": Method((1, 2), rate_factor=0.3),
    "day 2 from scratch": Method((2,)),
    "warm, state kept": Method((2,), True, True),
    "warm, state kept, rates x 0.3": Method((2,), True, True, 0.3),
    "warm, state anew": Method((2,), True, False),
    "warm, state anew, rates x 0.3": Method((2,), True, False, 0.3),
    "warm, state anew, rates x 0.1": Method((2,), True, False, 0.1),
}


@dataclass(frozen=True)
class Result:
    """Result of one run."""

    epochs: int
    is_shuffled: bool
    way: str
    """Name of the method, a key of `METHODS`; the field has the name that result files have."""
    seed: int
    auc: float
    log_loss: float
    samples: float
    table_rows: int
    seconds: float
    """Seconds of the run, without preparing its rows."""


@dataclass(frozen=True)
class Experiment:
    """Settings and files that all runs share."""

    document: dict[str, Any]
    is_shuffled: bool
    files: dict[str, Path]
    """Parquet files of the rows, under the names `1`, `2` and `held out`."""
    scratch: Path
    ranks: Ranks

    def train(self, name: str, seed: int) -> Result:
        method = METHODS[name]
        resolved = self._resolve_job(method, seed)
        directory = self._get_directory(method, seed)
        attempt = directory.attempt(1)
        attempt.create()
        data = self._prepare_rows(method, resolved, seed)
        PreparedData(directory=str(data), checksum="").write(directory.data)
        started = time.monotonic()
        outcome = run(RunContext(resolved, directory, attempt.profile, self.ranks, Reporter(attempt, 0), StopRequest()))
        assert outcome is not None, "the run goes to its end"
        metrics = outcome.metrics
        seconds = time.monotonic() - started
        auc, log_loss, samples = (metrics[name] for name in ("auc", "log_loss", "num_samples"))
        assert auc is not None, "the held-out rows have both labels"
        assert log_loss is not None
        assert samples is not None
        num_rows = sum(feature.num_ids for feature in open_packed_meta(data).features)
        epochs = round(resolved.job.run.epochs)
        return Result(epochs, self.is_shuffled, name, seed, auc, log_loss, samples, num_rows, seconds)

    def _get_directory(self, method: Method, seed: int) -> RunDirectory:
        if method == METHODS["day 1 alone"]:
            return RunDirectory(self.scratch / f"day-1-seed-{seed}")
        return RunDirectory(Path(tempfile.mkdtemp(dir=self.scratch)))

    def _resolve_job(self, method: Method, seed: int) -> ResolvedJob:
        document = json.loads(json.dumps(self.document))
        document["data"] |= {
            "train": [str(self.files[str(day)]) for day in method.days],
            "eval": [str(self.files["held out"])],
        }
        document["run"]["seed"] = seed
        for name in ("dense_optimizer", "table_optimizer"):
            document[name]["learning_rate"] *= method.rate_factor
        if method.is_warm:
            source = self._get_directory(METHODS["day 1 alone"], seed).path
            document["run"]["warm_start"] = {"from": str(source), "optimizer_state": method.optimizer_state}
        return resolve(parse_job(document))

    def _prepare_rows(self, method: Method, resolved: ResolvedJob, seed: int) -> Path:
        def ignore(_: ProgressEvent | NoteEvent) -> None:
            pass

        base = open_base(self._get_directory(METHODS["day 1 alone"], seed).model) if method.is_warm else None
        cache = self.scratch / "prepared"
        data = resolved.job.data
        return find_or_prepare(data, None, cache, base_directory=Path(), num_threads=2, on_event=ignore, base=base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "job", type=Path, help="a job on one Parquet file in order of time, such as examples/flights.toml"
    )
    parser.add_argument("--data", type=Path, required=True, help="the Parquet file of the job")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of every run (default: 1)")
    parser.add_argument("--shuffled", action="store_true", help="shuffle the rows first, so that days do not differ")
    parser.add_argument("--results", type=Path, default=Path("warm_start.jsonl"))
    arguments = parser.parse_args()
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    wanted = arguments.epochs, arguments.shuffled
    results = [found for line in lines if ((found := Result(**json.loads(line))).epochs, found.is_shuffled) == wanted]
    with tempfile.TemporaryDirectory() as scratch, join_alone() as ranks:
        files = _cut(arguments.data, arguments.shuffled, Path(scratch))
        experiment = Experiment(_read_document(arguments), arguments.shuffled, files, Path(scratch), ranks)
        for seed in SEEDS:
            missing = [name for name in METHODS if not any((r.way, r.seed) == (name, seed) for r in results)]
            if "day 1 alone" not in missing and any(METHODS[name].is_warm for name in missing):
                # Missing warm starts need the model of day 1, and that of an earlier call of the program was deleted.
                experiment.train("day 1 alone", seed)
            for name in missing:
                results.append(experiment.train(name, seed))
                with arguments.results.open("a") as file:
                    file.write(json.dumps(asdict(results[-1])) + "\n")
    _print(results)


def _read_document(arguments: argparse.Namespace) -> dict[str, Any]:
    document = tomllib.loads(arguments.job.read_text())
    document.setdefault("resources", {})["workers_per_node"] = 1
    document.setdefault("run", {})["epochs"] = arguments.epochs
    return document


def _cut(data: Path, is_shuffled: bool, scratch: Path) -> dict[str, Path]:
    """Write day 1, day 2 and the held-out rows of `data` to a file each; return the files by name."""
    table = parquet.read_table(data)
    if is_shuffled:
        table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    first_held_out = round(table.num_rows * (1 - HELD_OUT_FRACTION))
    first_of_day_2 = round(first_held_out * DAY_1_FRACTION)
    edges = {
        "1": (0, first_of_day_2),
        "2": (first_of_day_2, first_held_out),
        "held out": (first_held_out, table.num_rows),
    }
    files = {name: scratch / f"{name}.parquet" for name in edges}
    for name, (start, end) in edges.items():
        parquet.write_table(table.slice(start, end - start), files[name])
        print(f"{name}: {end - start:,} rows")  # noqa: T201
    return files


def _print(results: Sequence[Result]) -> None:
    print("| method | mean AUC | seeds | log-loss | samples | table rows | seconds |")  # noqa: T201
    for name in METHODS:
        found = [result for result in results if result.way == name]
        auc, log_loss, seconds = (
            statistics.mean(getattr(result, field) for result in found) for field in ("auc", "log_loss", "seconds")
        )
        seeds = " ".join(f"{result.auc:.4f}" for result in found)
        first = found[0]
        print(  # noqa: T201
            f"| {name} | {auc:.4f} | {seeds} | {log_loss:.4f} | {first.samples:,.0f} | {first.table_rows:,} "
            f"| {seconds:.1f} |"
        )


if __name__ == "__main__":
    main()
