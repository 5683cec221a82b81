"""Measures yardsticks: trains one and evaluates it on the evaluation rows of a run."""

import time
from collections.abc import Callable, Iterator

from dlrm.config import JobSpec
from dlrm.data.dataset import Dataset
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.record import LOGISTIC_REGRESSION, YardstickProgress, YardstickResult
from dlrm.yardsticks.boosted_trees import MAX_TREES, BoostedTrees, find_boosted_trees, fit_boosted_trees
from dlrm.yardsticks.logistic import LogisticRegression, fit_logistic_regression
from dlrm.yardsticks.rows import choose_rows, compute_max_bytes, score_rows

MAX_EVALUATION_ROWS = 2_000_000
"""Evaluation rows that are used, at most."""


def measure_yardsticks(
    job: JobSpec, dataset: Dataset, on_progress: Callable[[YardstickProgress], None] = lambda _: None
) -> Iterator[YardstickResult]:
    """Train the yardsticks that `job` names, one after the other, and yield the result of each.

    on_progress: called at the beginning of each, and with each tree.
    """
    max_bytes = compute_max_bytes(job.resources.memory)
    started = time.monotonic()
    on_progress(YardstickProgress(name=LOGISTIC_REGRESSION))
    is_mean = job.model.pooling == "mean"
    logistic = fit_logistic_regression(dataset.train, max_bytes, is_mean=is_mean)
    yield _evaluate(LOGISTIC_REGRESSION, logistic, job, dataset, started)
    del logistic
    name = find_boosted_trees()
    if job.run.yardsticks == "all" and name is not None:
        started = time.monotonic()
        on_progress(YardstickProgress(name=name))

        def report_tree(number: int) -> None:
            detail = f"tree {number} of at most {MAX_TREES}"
            on_progress(YardstickProgress(name=name, done_fraction=number / MAX_TREES, detail=detail))

        trees = fit_boosted_trees(name, dataset.train, max_bytes, job.resources.num_cores, report_tree)
        yield _evaluate(name, trees, job, dataset, started)


def _evaluate(
    name: str, model: LogisticRegression | BoostedTrees, job: JobSpec, dataset: Dataset, started: float
) -> YardstickResult:
    row_numbers = choose_rows(dataset.evaluation.num_rows, MAX_EVALUATION_ROWS)
    scored = score_rows(dataset.evaluation, row_numbers, model.predict).correct(job.data.negative_sampling)
    metrics = compute_binary_metrics(scored.labels, scored.logits, scored.weights)
    return YardstickResult(
        name=name,
        auc=metrics.auc,
        auc_standard_error=metrics.auc_standard_error,
        log_loss=metrics.log_loss,
        calibration=metrics.calibration,
        seconds=time.monotonic() - started,
        num_train_rows=model.num_rows,
        num_rows=len(row_numbers),
    )
