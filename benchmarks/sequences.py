"""Worth of histories: attention over them, pooled lists, and models without, beside simple models.

`python -m benchmarks.sequences examples/movielens.toml --data movielens.parquet`: trains the job on one rank, in this
process, with each use of its sequences, with one seed at each rate of the tables, and with two more at the better one.
The last tenth of the training rows chooses the step that is kept. NDCG@10 is the mean over users with both labels among
their evaluation rows, with gains of 0 and 1. Every finished run is a line of JSON in --results, and is not repeated.
"""

import argparse
import json
import statistics
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.in_process import join_alone
from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.rows import RowSource
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.score import score
from dlrm.metrics.binary import auc, log_loss
from dlrm.metrics.grouped import compute_grouped_metrics
from dlrm.record import NDCG_AT, PreparedData, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from dlrm.yardsticks.boosted_trees import find_boosted_trees, fit_boosted_trees
from dlrm.yardsticks.logistic import fit_logistic_regression
from sharding.comm.process_groups import Ranks

SEEDS, TABLE_RATES = (0, 1, 2), (0.05, 0.01)
BEST = 10
GROUP = "user"
METHODS: dict[str, dict[str, Any] | str] = {
    "no histories": "drop",
    "histories as pooled lists": "pool",
    "din": {"kind": "din"},
    "transformer": {"kind": "transformer"},
    "hstu": {"kind": "hstu"},
    "hstu, 2 layers": {"kind": "hstu", "num_layers": 2},
}
MAX_BYTES = 1 << 31


def compute_ndcg(labels: NDArray[np.float32], scores: NDArray[np.float64], groups: NDArray[np.int64]) -> float | None:
    """Compute the mean NDCG@10 of the groups with both labels."""
    with_both = np.intersect1d(groups[labels == 1], groups[labels == 0])
    chosen = np.where(np.isin(groups, with_both), groups, -1)
    return compute_grouped_metrics(labels, scores, None, chosen, [BEST])[f"{NDCG_AT}{BEST}"]


def measure(source: RowSource, logits: NDArray[np.float64]) -> dict[str, float | None]:
    """Measure logits of all rows of a source."""
    rows = source.read(np.arange(source.num_rows))
    number = [feature.name for feature in source.schema.features].index(GROUP)
    ids = np.split(rows.ids.values, np.cumsum(rows.ids.lengths.sum(axis=1)))[number]
    return {
        "auc": auc(rows.labels, logits, None),
        "ndcg": compute_ndcg(rows.labels, logits, ids),
        "log_loss": log_loss(rows.labels, logits, None),
    }


def make_job(document: dict[str, Any], method: dict[str, Any] | str, rate: float, seed: int) -> ResolvedJob:
    """Resolve the job with one use of its sequences. rate: learning rate of the tables."""
    changed = json.loads(json.dumps(document))
    columns = changed["data"]["schema"]["categorical"]
    if method == "drop":
        columns = [column for column in columns if "sequence" not in column]
    elif method == "pool":
        # The newest 50 values, as attention reads them, are not to be had: all values are pooled.
        columns = [{name: value for name, value in column.items() if name != "sequence"} for column in columns]
    changed["data"]["schema"]["categorical"] = columns
    changed["model"]["attention"] = method if isinstance(method, dict) else None
    changed["model"]["pooling"] = "mean"
    changed["table_optimizer"]["learning_rate"] = rate
    changed["run"] |= {"seed": seed, "validation_fraction": 0.1, "keep_model": "best", "blend": "none"}
    return resolve(parse_job(changed))


def prepare(job: ResolvedJob, scratch: Path) -> Path:
    """Prepare the rows of a job."""
    return find_or_prepare(
        job.job.data, None, scratch / "prepared", base_directory=Path(), num_threads=1, on_event=lambda _: None
    )


def train(job: ResolvedJob, scratch: Path, ranks: Ranks) -> dict[str, float | None]:
    """Train a job, and measure its model on the evaluation rows."""
    directory = RunDirectory(Path(tempfile.mkdtemp(dir=scratch)))
    attempt, data = directory.attempt(1), prepare(job, scratch)
    attempt.create()
    PreparedData(directory=str(data), checksum="").write(directory.data)
    started = time.monotonic()
    run(RunContext(job, directory, attempt.profile, ranks, Reporter(attempt, 0), StopRequest()))
    seconds, source = time.monotonic() - started, open_packed(data).evaluation
    rows = source.read(np.arange(source.num_rows))
    logits = score(load_saved_model(directory.model).module, rows).astype(np.float64)
    return {**measure(source, logits), "seconds": seconds}


def fit_simple(job: ResolvedJob, scratch: Path) -> dict[str, dict[str, float | None]]:
    """Fit the simple models on the training rows, and measure them."""
    data, found = open_packed(prepare(job, scratch)), {}
    rows = data.evaluation.read(np.arange(data.evaluation.num_rows))
    logistic = fit_logistic_regression(data.train, MAX_BYTES, is_mean=True)
    found["logistic regression"] = measure(data.evaluation, logistic.predict(rows))
    if (name := find_boosted_trees()) is not None:
        trees = fit_boosted_trees(name, data.train, MAX_BYTES, 1)
        found[name] = measure(data.evaluation, trees.predict(rows))
    return found


class Experiment:
    """All runs of a job, whose results are kept in a file."""

    def __init__(self, document: dict[str, Any], path: Path, scratch: Path, ranks: Ranks) -> None:
        """Read the results so far. document: of the job."""
        self._document, self._path, self._scratch, self._ranks = document, path, scratch, ranks
        lines = path.read_text().splitlines() if path.exists() else []
        self.results: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def train(self, name: str, rate: float, seed: int) -> None:
        """Train with a method, unless that was done before."""
        run = {"method": name, "rate": rate, "seed": seed}
        if not any(run.items() <= found.items() for found in self.results):
            job = make_job(self._document, METHODS[name], rate, seed)
            self._add({**run, **train(job, self._scratch, self._ranks)})

    def find_better_rate(self, name: str) -> float:
        """Find the rate at which a method had the larger AUC."""
        own = [found for found in self.results if (found["method"], found["seed"]) == (name, SEEDS[0])]
        return max(own, key=lambda found: found["auc"])["rate"]

    def fit_simple_models(self) -> None:
        """Fit logistic regression and trees, unless that was done before."""
        if not any(found["method"] == "logistic regression" for found in self.results):
            job = make_job(self._document, "pool", TABLE_RATES[0], SEEDS[0])
            for name, metrics in fit_simple(job, self._scratch).items():
                self._add({"method": name, "rate": 0.0, "seed": 0, **metrics})

    def _add(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="a job whose schema has sequences")
    parser.add_argument("--data", type=Path, required=True, help="the file of the job")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("sequences.jsonl"))
    arguments = parser.parse_args()
    document = tomllib.loads(arguments.job.read_text())
    document["data"]["train"] = [str(arguments.data)]
    document["run"]["epochs"] = arguments.epochs
    with tempfile.TemporaryDirectory() as scratch, join_alone() as ranks:
        experiment = Experiment(document, arguments.results, Path(scratch), ranks)
        for name in METHODS:
            for rate in TABLE_RATES:
                experiment.train(name, rate, SEEDS[0])
        for seed in SEEDS[1:]:
            for name in METHODS:
                experiment.train(name, experiment.find_better_rate(name), seed)
        experiment.fit_simple_models()
    print_table(experiment.results)


def print_table(results: list[dict[str, Any]]) -> None:
    """Print the mean of each method and rate over the seeds, and the least and largest AUC."""
    print("| method | rate | AUC | of the seeds | NDCG@10 | log-loss | seconds |\n|---|---|---|---|---|---|---|")  # noqa: T201
    for name, rate in dict.fromkeys((found["method"], found["rate"]) for found in results):
        own = [found for found in results if (found["method"], found["rate"]) == (name, rate)]
        means = {
            field: statistics.mean(found.get(field) or 0.0 for found in own)
            for field in ("auc", "ndcg", "log_loss", "seconds")
        }
        aucs = [found["auc"] for found in own]
        spread = f"{min(aucs):.4f} to {max(aucs):.4f}" if len(own) > 1 else ""
        print(  # noqa: T201
            f"| {name} | {rate} | {means['auc']:.4f} | {spread} | {means['ndcg']:.4f} | {means['log_loss']:.4f} "
            f"| {means['seconds']:.0f} |"
        )


if __name__ == "__main__":
    main()
