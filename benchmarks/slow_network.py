"""All-reduce against averages of the dense weights, on four ranks with slow links, with and without a straggler.

Every rank is a machine of its own (namespaces of this machine, `shaped_network`). All methods train one job: 26 tables
of a synthetic log, exact in all of them, and a large dense part. Long trials, on the first link without a straggler,
give the steps to a log-loss. What is learned depends neither on links nor on delays: short trials give the seconds of a
step on the others. A straggler sleeps before a step. `fixed` is the last rank at every step, `roving` a random one at
each.

Needs root. Each finished trial is a line of RESULTS/trials.jsonl; the same command makes the missing ones.
`python -m benchmarks.slow_network [--results DIRECTORY]`.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.processes import find_free_port
from benchmarks.shaped_network import DEVICE, Link, ShapedMachine, enter, shaped_machines
from benchmarks.trials import describe_setting
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.config import DenseAveragingConfig, ResolvedJob, parse_job, resolve
from dlrm.data.open import open_data
from dlrm.record import EvaluationReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.setup import open_trainer
from dlrm.train.stop_request import StopRequest
from dlrm.train.trainer import Trainer
from sharding.comm.process_groups import join_process_groups

WORLD_SIZE = 4
METHODS: dict[str, dict[str, Any] | None] = {
    "all-reduce": None,
    "local_sgd": {"method": "local_sgd"},
    "easgd": {"method": "easgd"},
    "dmsgd": {"method": "dmsgd", "graph": "ring"},
    "decentlam": {"method": "decentlam", "graph": "ring"},
}
"""Dense averaging of a job, by method; each with its default settings but a ring, since on four ranks every two are
neighbours in the exponential graph."""
STRAGGLERS = ("none", "fixed", "roving")
ROUND_TRIP_MS = 0.5
BATCH, EVAL_STEPS, NUM_ROWS, EVAL_FRACTION = 512, 10, 400_000, 0.01
NUM_WARM_STEPS = 3
"""Steps at the start whose seconds are not counted: memory is allocated, and connections find their speed."""
TABLE_KINDS = ("ids", "pooled embeddings", "gradients", "gradients of copies")
"""Kinds of exchanges of the tables."""


@dataclass(frozen=True)
class Setting:
    """Method, network and length of a trial."""

    method: str
    megabits_per_second: float
    straggler: str
    delay_seconds: float
    """Seconds that the straggler sleeps before a step."""
    num_steps: int


@dataclass
class Course:
    """Figures of rank 0 in a trial: of steps that are neither among the first nor end with an evaluation."""

    step_seconds: float
    """Seconds of a step, from its start to the start of the next: the median; with an exchange of weights every k
    steps, the mean of the medians of k steps in a row."""
    seconds: list[float] = field(default_factory=list[float])
    """Seconds of each step."""
    log_losses: dict[str, float] = field(default_factory=dict[str, float])
    """Log-loss of the evaluation rows, by the number of steps before."""
    sent_bytes: dict[str, float] = field(default_factory=dict[str, float])
    """Bytes that the rank sent in a step, by kind: the mean, as of all figures below."""
    waited_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds that it waited in a step for exchanges, by kind."""
    part_seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds of a step by its parts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/evidence/methods/slow_network"))
    parser.add_argument("--links", type=float, nargs="+", default=[1000, 100], help="megabits per second")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--stragglers", nargs="+", choices=STRAGGLERS, default=list(STRAGGLERS))
    parser.add_argument("--delay", type=float, default=0.3, help="seconds that a straggler sleeps before a step")
    parser.add_argument("--steps", type=int, default=100, help="steps of the long trials")
    parser.add_argument("--short-steps", type=int, default=25, help="steps of the others")
    parser.add_argument("--target", type=float, help="log-loss to reach; default: the best that every method reaches")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a trial is ended as failed")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    results = Results(arguments.results / "trials.jsonl")
    settings = list(list_settings(arguments))
    for link in arguments.links:
        missing = [one for one in settings if one.megabits_per_second == link and results.find(one) is None]
        if not missing:
            continue
        with shaped_machines(WORLD_SIZE, Link(link / 1e3, ROUND_TRIP_MS)) as machines:
            for setting in missing:
                results.add(setting, run_trial(setting, machines, arguments.limit))
                _print(f"done: {setting}")
    print_table(results, settings, arguments.target)


def list_settings(arguments: argparse.Namespace) -> Iterator[Setting]:
    """List the trials, the long ones first; methods take turns, so that a busy machine slows all of them."""
    for straggler in arguments.stragglers:
        for link in arguments.links:
            is_long = link == arguments.links[0] and straggler == arguments.stragglers[0]
            for method in arguments.methods:
                delay = 0.0 if straggler == "none" else arguments.delay
                yield Setting(method, link, straggler, delay, arguments.steps if is_long else arguments.short_steps)


class Results:
    """Finished trials in a file, a line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._courses = {Setting(**line["setting"]): Course(**line["course"]) for line in map(json.loads, lines)}

    def find(self, setting: Setting) -> Course | None:
        return self._courses.get(setting)

    def add(self, setting: Setting, course: Course) -> None:
        self._courses[setting] = course
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = {"setting": asdict(setting), "course": asdict(course), "machine": describe_setting()}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def make_job(setting: Setting) -> ResolvedJob:
    document: dict[str, Any] = {
        "data": {
            "format": "synthetic",
            "eval_fraction": EVAL_FRACTION,
            "synthetic": {"num_rows": NUM_ROWS, "num_ids": 10_000},
        },
        "model": {"embedding_dim": 16, "bottom_mlp": [512, 256, 16], "top_mlp": [1024, 1024, 512, 1]},
        "batch": {"global_size": BATCH},
        "dense_optimizer": {"name": "momentum", "learning_rate": 0.05, "schedule": {"decay": "constant"}},
        "table_optimizer": {"name": "rowwise_adagrad", "learning_rate": 0.05, "schedule": {"decay": "constant"}},
        "moments": None,
        "dense_averaging": METHODS[setting.method],
        "run": {
            # Trials of all lengths begin with the same batches.
            "epochs": BATCH * setting.num_steps / (NUM_ROWS * (1 - EVAL_FRACTION)),
            "eval_every_fraction": EVAL_STEPS / setting.num_steps,
            "yardsticks": "none",
            "blend": "none",
        },
        "resources": {"nodes": WORLD_SIZE, "workers_per_node": 1, "threads_per_worker": 1, "memory": "4GiB"},
        "sharding": {
            "transport": "network",
            "topology": {"inter_node_bandwidth": setting.megabits_per_second * 1e6 / 8},
        },
    }
    for optimizer in ("dense_optimizer", "table_optimizer"):
        document[optimizer]["schedule"]["warmup_fraction"] = 0.0
    return resolve(parse_job(document))


def run_trial(setting: Setting, machines: Sequence[ShapedMachine], limit_seconds: float) -> Course:
    """Train with a rank on each machine. Raises RuntimeError if a rank fails or the time is over."""
    # A fork has torch, whose import takes longer than many steps.
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        shared = (setting, machines, find_free_port(), Path(name))
        ranks = [context.Process(target=run_rank, args=(rank, *shared)) for rank in range(WORLD_SIZE)]
        end = time.monotonic() + limit_seconds
        try:
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(max(0.0, end - time.monotonic()))
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()
        if any(rank.exitcode for rank in ranks):
            raise RuntimeError(f"{setting} failed, or took longer than {limit_seconds:g} seconds")
        return Course(**json.loads((Path(name) / "course.json").read_text()))


def run_rank(rank: int, setting: Setting, machines: Sequence[ShapedMachine], port: str, directory: Path) -> None:
    """Train as one rank of a trial; rank 0 leaves its course in `directory`."""
    enter(machines[rank])
    os.environ |= {"MASTER_ADDR": machines[0].address, "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": DEVICE}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(WORLD_SIZE)}
    torch.set_num_threads(1)
    resolved, run = make_job(setting), RunDirectory(directory / str(rank))
    attempt = run.attempt(1)
    attempt.create()
    with join_process_groups() as ranks:
        ranks.exchange_clock.is_running = True
        reporter = Reporter(attempt, rank)
        context = RunContext(resolved, run, attempt.profile, ranks, reporter, StopRequest())
        dataset = open_data(resolved.job.data, None, None)
        with open_trainer(context, dataset, RunIdentity.from_job(resolved, None)) as trainer:
            watch = Watch(setting, trainer)
            replace(trainer, before_batch=watch).train()
        reporter.close()
    if rank == 0:
        reports = list(map(parse_report, SpoolReader(attempt.spool_file(0, "metrics")).read()))
        losses = {str(report.step): report.log_loss for report in reports if isinstance(report, EvaluationReport)}
        (directory / "course.json").write_text(json.dumps(asdict(watch.summarise(losses))))


class Watch:
    """Delays a straggler, and reads the clocks of a rank before each step."""

    def __init__(self, setting: Setting, trainer: Trainer) -> None:
        self._setting, self._trainer = setting, trainer
        self._readings: list[dict[tuple[str, str], float]] = []

    def __call__(self) -> None:
        self._readings.append(self._read())
        if self._is_delayed():
            time.sleep(self._setting.delay_seconds)

    def summarise(self, log_losses: dict[str, float]) -> Course:
        """Compute the means of all steps that neither are among the first nor end with an evaluation."""
        intervals = {
            step: {key: later - earlier.get(key, 0.0) for key, later in after.items()}
            for step, (earlier, after) in enumerate(zip(self._readings, self._readings[1:], strict=False), start=1)
            if step > NUM_WARM_STEPS and step % EVAL_STEPS
        }
        # Steps that exchange weights count as often as they occur in a run.
        every = DenseAveragingConfig(**METHODS[self._setting.method] or {"every": 1}).interval
        phases = [[later for step, later in intervals.items() if step % every == phase] for phase in range(every)]

        def average(name: str, kind: str, of_phase: Callable[[list[float]], float] = statistics.fmean) -> float:
            figures = [[interval.get((name, kind), 0.0) for interval in intervals] for intervals in phases]
            return round(statistics.fmean(of_phase(of_steps) for of_steps in figures), 5)

        def list_averages(name: str) -> dict[str, float]:
            return {kind: average(name, kind) for of, kind in self._readings[-1] if of == name}

        return Course(
            average("time", "", statistics.median),
            [round(interval["time", ""], 4) for interval in intervals.values()],
            log_losses,
            *(list_averages(name) for name in ("sent_bytes", "waited_seconds", "part_seconds")),
        )

    def _is_delayed(self) -> bool:
        rank, step = self._trainer.ranks.rank, self._trainer.progress.step
        if self._setting.straggler == "roving":
            return rank == random.Random(step).randrange(WORLD_SIZE)
        return self._setting.straggler == "fixed" and rank == WORLD_SIZE - 1

    def _read(self) -> dict[tuple[str, str], float]:
        reading = {("time", ""): time.perf_counter()}
        for kind, exchanged in self._trainer.ranks.exchange_clock.by_kind.items():
            reading["sent_bytes", kind] = exchanged.sent_bytes
            reading["waited_seconds", kind] = exchanged.waited_seconds
        return reading | {("part_seconds", part): value for part, value in self._trainer.step.clock.seconds.items()}


def print_table(results: Results, settings: list[Setting], target: float | None) -> None:
    courses = {setting: course for setting in settings if (course := results.find(setting)) is not None}
    by_length = sorted(courses.items(), key=lambda one: one[0].num_steps)
    longest = {setting.method: course.log_losses for setting, course in by_length}
    target = target or max(min(losses.values()) for losses in longest.values())
    _print(f"target log-loss {target:.4f}")
    _print("| Mbit/s | straggler | method | s a step | MB a step | of the tables | steps to target | s to target |")
    _print("|---|---|---|---|---|---|---|---|")
    for setting, course in courses.items():
        sent = sum(course.sent_bytes.values())
        of_tables = sum(course.sent_bytes.get(kind, 0.0) for kind in TABLE_KINDS) / sent
        steps = find_steps(longest[setting.method], target)
        to_target = "- | -" if steps is None else f"{steps:.0f} | {steps * course.step_seconds:.0f}"
        where = f"{setting.megabits_per_second:g} | {setting.straggler} | {setting.method}"
        _print(f"| {where} | {course.step_seconds:.3f} | {sent / 1e6:.2f} | {of_tables:.0%} | {to_target} |")


def find_steps(log_losses: dict[str, float], target: float) -> float | None:
    """Find the steps to a log-loss, on a line between two evaluations; None if no evaluation is as good."""
    last_step, last_loss = 0.0, math.inf
    for step, loss in ((float(step), loss) for step, loss in log_losses.items()):
        if loss <= target:
            is_first = math.isinf(last_loss)
            return step if is_first else step - (step - last_step) * (target - loss) / (last_loss - loss)
        last_step, last_loss = step, loss
    return None


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
