"""AUC with variance reduction at a large batch, compared with the same optimizer without it and with its controls.

`python -m benchmarks.methods JOB.toml --batch 16384`: trains the job on one rank, in this process, with every method at
every learning rate, two seeds each. Rates and schedule are those of this file and replace the job's own. The value of a
method is its gain over the best rate of the plain optimizer, and over its own controls. Every finished run is a line of
JSON in --results, and is not repeated; a run that diverges has AUC 0.5.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.in_process import Results, join_alone, prepare_rows, read_job, train_to_auc
from dlrm.train.divergence import DivergedError

ALL: dict[str, Any] = {"moments": {"fraction": 1.0}}
"""Job section for moments of all samples, so that the compared methods differ in nothing else."""
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "VR": {**ALL, "variance_reduction": {}},
    "VR, moments of an eighth": {"variance_reduction": {}},
    "VR, moments of groups": {"moments": {"estimator": "groups"}, "variance_reduction": {}},
    "control mean": {**ALL, "variance_reduction": {"control": "mean"}},
    "control shuffled": {**ALL, "variance_reduction": {"control": "shuffled"}},
    "VR of the update": {**ALL, "variance_reduction": {"scale": "update"}},
    "control mean of the update": {**ALL, "variance_reduction": {"control": "mean", "scale": "update"}},
}
TRIALS: dict[str, tuple[list[float], list[str]]] = {
    "sgd": (
        [0.3, 1.0, 3.0],
        ["plain", "VR", "VR, moments of an eighth", "VR, moments of groups", "control mean", "control shuffled"],
    ),
    "adam": ([0.002, 0.005, 0.01], ["plain", "VR", "VR of the update", "control mean of the update"]),
    "lamb": ([0.005, 0.02], ["plain", "VR", "VR of the update"]),
}
"""Learning rates and methods of each optimizer."""
SCHEDULE: dict[str, Any] = {"scaling": "none", "warmup_fraction": 0.1, "decay": "polynomial", "power": 1.0}
SEEDS = (0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="a job on raw rows or a synthetic log, such as examples/flights.toml")
    parser.add_argument("--batch", type=int, default=16_384, help="samples of a step")
    parser.add_argument("--results", type=Path, default=Path("methods.jsonl"))
    arguments = parser.parse_args()
    done = Results(arguments.results, "batch", "optimizer", "rate", "method", "seed")
    with tempfile.TemporaryDirectory() as scratch, join_alone() as ranks:
        is_raw = read_job(arguments.job, {}).job.data.is_raw
        rows = prepare_rows(arguments.job, Path(scratch)) if is_raw else None
        for trial in _list_trials(arguments.batch):
            if trial not in done:
                try:
                    auc = train_to_auc(read_job(arguments.job, _make_changes(*trial)), rows, Path(scratch), ranks)
                except DivergedError:
                    auc = 0.5
                done.add(trial, auc)
    _print(done, arguments.batch)


def _list_trials(batch: int) -> list[tuple[int, str, float, str, int]]:
    return [
        (batch, optimizer, rate, method, seed)
        for seed in SEEDS
        for optimizer, (rates, methods) in TRIALS.items()
        for method in methods
        for rate in rates
    ]


def _make_changes(batch: int, optimizer: str, rate: float, method: str, seed: int) -> dict[str, dict[str, Any]]:
    return {
        "batch": {"global_size": batch},
        "dense_optimizer": {"name": optimizer, "learning_rate": rate, "schedule": SCHEDULE},
        "run": {"seed": seed, "eval_every_fraction": 1.0},
        **METHODS[method],
    }


def _print(done: Results, batch: int) -> None:
    for optimizer, (rates, methods) in TRIALS.items():
        print(f"| {optimizer} | " + " | ".join(str(rate) for rate in rates) + " |")  # noqa: T201
        print("|---" * (1 + len(rates)) + "|")  # noqa: T201
        for method in methods:
            means = [statistics.mean(done[batch, optimizer, rate, method, seed] for seed in SEEDS) for rate in rates]
            print(f"| {method} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")  # noqa: T201


if __name__ == "__main__":
    main()
