"""Sweeps for tests: their documents, and results without a run."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cli.experiments.sweep.document import Sweep, read_sweep
from cli.experiments.sweep.plan import Plan
from cli.experiments.trials.ended_run import make_result
from cli.experiments.trials.results import TrialResult
from cli.experiments.trials.runner import Trial

JOB = """
[job]
data = { format = "synthetic", synthetic = { num_rows = 20_000, num_ids = 50 } }
model = { architecture = "dlrm", bottom_mlp = [8, 4], top_mlp = [8, 1] }
batch = { global_size = 1024 }
run = { epochs = 1 }
resources = { workers_per_node = 1 }
"""
TWO_METHODS = """
seeds = [0, 1]
confirm_seeds = [10, 11]
compare = ["batch.global_size"]

[methods.adam]
dense_optimizer.name = "adam"
[methods.sgd]
dense_optimizer.name = "sgd"

[grid]
"batch.global_size" = [256, 1024]
"dense_optimizer.learning_rate" = [0.01, 0.03, 0.1]
"""

EVERY_RATE = {0.01, 0.03, 0.1}


def write_sweep(directory: Path, text: str = TWO_METHODS, job: str = JOB) -> Path:
    path = directory / "batches.toml"
    path.write_text(text + job)
    return path


def make_plan(directory: Path, text: str = TWO_METHODS, job: str = JOB) -> Plan:
    return Plan(read_sweep(write_sweep(directory, text, job)))


def read_document(directory: Path, text: str = TWO_METHODS, job: str = JOB) -> Sweep:
    return read_sweep(write_sweep(directory, text, job))


def make_end(
    trial: Trial, loss: float | None = 0.5, auc: float = 0.7, reason: str = "completed", seconds: float = 10.0
) -> TrialResult:
    """Make the result of a trial that was not run. loss: on the validation rows."""
    metrics = {"validation_log_loss": loss, "auc": auc, "log_loss": 0.6, "num_samples": 16_200 * trial.fraction}
    is_done = reason == "completed"
    kept = metrics if is_done else {}
    return make_result(trial, kept, seconds * trial.fraction, is_done=is_done, reason=reason, num_steps=16)


def run_all(plan: Plan, end: Callable[[Trial], TrialResult], most: int = 1000) -> list[TrialResult]:
    """Take the trials that are due, one after another, as they end in `end`."""
    results: list[TrialResult] = []
    while len(results) < most and (due := plan.list_due({result.key: result for result in results})):
        results.append(end(due[0]))
    return results


def list_rates(results: Iterable[TrialResult]) -> list[float]:
    return [result.settings["dense_optimizer.learning_rate"] for result in results]


def select(results: Sequence[TrialResult], method: str, batch: int, stage: str = "grid") -> list[TrialResult]:
    return [
        result
        for result in results
        if (result.method, result.compared["batch.global_size"], result.stage) == (method, batch, stage)
    ]
