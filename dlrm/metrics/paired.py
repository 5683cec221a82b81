"""Comparison of models on the same rows: their rows are drawn once, so that most of the chance in them cancels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlrm.metrics.binary import Vector, check_rows, compute_row_losses
from dlrm.metrics.ranking import compute_covariance_of_means

Matrix = NDArray[Any]


@dataclass(frozen=True)
class PairedDifference:
    """Metric of a first model minus the same metric of a second one, on the same rows."""

    value: float
    standard_error: float | None
    """Standard error of the difference over samples of rows; None if there are too few rows."""


def compare_aucs(
    labels: Vector, first: Vector, second: Vector, weights: Vector | None = None
) -> PairedDifference | None:
    """Compare the AUCs of two vectors of scores [n] of the same rows; None if all labels are of one class.

    The difference over its standard error is the statistic of the paired DeLong test, normal for many rows where both
    AUCs are truly the same (see `compute_auc_covariance`).
    """
    found = compute_auc_covariance(labels, [first, second], weights)
    if found is None:
        return None
    aucs, covariance = found
    variance = None if covariance is None else covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    # Rounding alone makes the variance of two equal models negative.
    return PairedDifference(float(aucs[0] - aucs[1]), None if variance is None else math.sqrt(max(variance, 0.0)))


def compare_log_losses(
    labels: Vector, first: Vector, second: Vector, weights: Vector | None = None
) -> PairedDifference:
    """Compare the log-losses of two vectors of logits [n] of the same rows, by the differences of single rows."""
    for logits in (first, second):
        check_rows(labels, logits, weights)
    differences = compute_row_losses(labels, first) - compute_row_losses(labels, second)
    return _make_mean(differences, weights)


def measure_log_loss(labels: Vector, logits: Vector, weights: Vector | None = None) -> PairedDifference:
    """Measure the log-loss of one model with its standard error over samples of rows: its difference to no loss."""
    check_rows(labels, logits, weights)
    return _make_mean(compute_row_losses(labels, logits), weights)


def compute_auc_covariance(
    labels: Vector, scores: Sequence[Vector], weights: Vector | None = None
) -> tuple[Vector, Matrix | None] | None:
    """Compute the AUCs [k] of k vectors of scores [n] of the same rows, and their covariance [k, k] over samples of
    rows.

    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves: a nonparametric approach", 1988: the covariance between positives of the shares of negatives
    that each one beats, over their number, plus the same for negatives. The shares come from ranks in O(n log n), as in
    Sun and Xu, "Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver operating
    characteristic curves", 2014. Weighted rows count as (sum w)^2 / sum w^2 rows, as in `RankedRows`.

    Returns None if all labels are of one class; the covariance is None if a label has fewer than two rows with a
    weight. Raises ValueError as `compute_binary_metrics` does.
    """
    for vector in scores:
        check_rows(labels, vector, weights)
    is_positive = labels == 1
    row_weights = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    positive_weights, negative_weights = row_weights[is_positive], row_weights[~is_positive]
    if not (positive_weights.sum() and negative_weights.sum()):
        return None
    shares = [
        (
            _compute_shares_below(vector[is_positive], vector[~is_positive], negative_weights),
            1 - _compute_shares_below(vector[~is_positive], vector[is_positive], positive_weights),
        )
        for vector in scores
    ]
    of_positives, of_negatives = (np.stack(both) for both in zip(*shares, strict=True))
    aucs = of_positives @ positive_weights / positive_weights.sum()
    parts = [
        compute_covariance_of_means(of_positives, positive_weights, positive_weights**2),
        compute_covariance_of_means(of_negatives, negative_weights, negative_weights**2),
    ]
    first, second = parts
    return aucs, None if first is None or second is None else first + second


def _compute_shares_below(scores: Vector, others: Vector, weights: Vector) -> Vector:
    """Compute for each of `scores` the weighted share of `others` below it; equal scores count half."""
    order = np.argsort(others)
    ordered = others[order]
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    below, up_to = sums[np.searchsorted(ordered, scores, "left")], sums[np.searchsorted(ordered, scores, "right")]
    return (below + up_to) / (2 * sums[-1])


def _make_mean(values: Vector, weights: Vector | None) -> PairedDifference:
    row_weights = np.ones(len(values)) if weights is None else weights.astype(np.float64)
    mean = float(values @ row_weights / row_weights.sum())
    covariance = compute_covariance_of_means(values[None], row_weights, row_weights**2)
    return PairedDifference(mean, None if covariance is None else math.sqrt(covariance[0, 0]))
