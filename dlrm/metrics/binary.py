"""Metrics of predicted logits against labels of 0 and 1, exact: float64 sums and int64 counts.

The input is logits, since float32 probabilities tie near a logit of 17 and are all 1 above it: rows that a model
distinguishes would count as tied. Every metric takes weights [n] of the rows, at least 0 and not all 0; without weights
all rows count the same.

torchmetrics sums in float32 even for float64 input: its AUC of a million tied scores is 6.6e-8 off scikit-learn's
(torchmetrics 1.0.3), where this one agrees to 1e-12.
"""

import math
from dataclasses import dataclass

import numpy as np

from dlrm.metrics.ranking import Vector, rank_rows

EPSILON = 2.0**-52
"""Smallest distance of a probability from 0 and 1 where its logarithm is taken."""


@dataclass(frozen=True)
class BinaryMetrics:
    """Metrics of one set of predictions."""

    num_rows: int
    auc: float | None
    auc_standard_error: float | None
    log_loss: float
    normalized_entropy: float | None
    calibration: float | None


def compute_binary_metrics(labels: Vector, logits: Vector, weights: Vector | None = None) -> BinaryMetrics:
    """Compute all metrics of one set of predictions.

    Raises ValueError if it is empty, or contains NaN or labels other than 0 and 1.
    """
    check_rows(labels, logits, weights)
    ranked = rank_rows(labels, logits, weights)
    return BinaryMetrics(
        num_rows=len(labels),
        auc=ranked.compute_auc(),
        auc_standard_error=ranked.compute_standard_error(),
        log_loss=log_loss(labels, logits, weights),
        normalized_entropy=normalized_entropy(labels, logits, weights),
        calibration=calibration(labels, logits, weights),
    )


def auc(labels: Vector, scores: Vector, weights: Vector | None = None) -> float | None:
    """Compute the area under the ROC curve, see `RankedRows.compute_auc`; None if all labels are of one class."""
    check_rows(labels, scores, weights)
    return rank_rows(labels, scores, weights).compute_auc()


def log_loss(labels: Vector, logits: Vector, weights: Vector | None = None) -> float:
    """Compute the mean negative log-likelihood, in nats: log(1 + exp(-z)) of a logit z where the label is 1, log(1 +
    exp(z)) where it is 0.

    Probabilities are kept EPSILON away from 0 and 1, as in scikit-learn, so that a row costs at most 36.04.
    """
    check_rows(labels, logits, weights)
    return _mean(compute_row_losses(labels, logits), weights)


def compute_row_losses(labels: Vector, logits: Vector) -> Vector:
    """Compute the negative log-likelihood [n] of each row, clipped as in `log_loss`, of rows that are checked."""
    largest = -math.log(EPSILON)
    clipped = np.clip(logits.astype(np.float64), -largest, largest)
    clipped[labels == 1] *= -1
    # log(1 + exp(z)) without overflow, and six times as fast as logaddexp.
    return np.maximum(clipped, 0) + np.log1p(np.exp(-np.abs(clipped)))


def normalized_entropy(labels: Vector, logits: Vector, weights: Vector | None = None) -> float | None:
    """Compute log_loss over the log-loss of the constant predictor at these rows' label rate; None for labels of one
    class.

    He et al., "Practical lessons from predicting clicks on ads at Facebook", 2014.
    """
    rate = _mean(labels, weights)
    if not 0 < rate < 1:
        return None
    return log_loss(labels, logits, weights) / constant_log_loss(labels, rate, weights)


def calibration(labels: Vector, logits: Vector, weights: Vector | None = None) -> float | None:
    """Compute the sum of the probabilities divided by the sum of the labels, ideally 1; None if no label is 1."""
    sum_of_labels = _sum(labels, weights)
    if not sum_of_labels:
        return None
    with np.errstate(over="ignore"):
        probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return _sum(probabilities, weights) / sum_of_labels


def constant_log_loss(labels: Vector, rate: float, weights: Vector | None = None) -> float:
    """Compute the mean negative log-likelihood of predicting `rate` for every row, clipped as in `log_loss`."""
    clipped, label_rate = min(max(rate, EPSILON), 1 - EPSILON), _mean(labels, weights)
    return -(label_rate * math.log(clipped) + (1 - label_rate) * math.log1p(-clipped))


def _sum(values: Vector, weights: Vector | None) -> float:
    if weights is not None:
        values = values.astype(np.float64) * weights
    return float(np.sum(values, dtype=np.float64))


def _mean(values: Vector, weights: Vector | None) -> float:
    if weights is None:
        return float(np.mean(values, dtype=np.float64))
    return _sum(values, weights) / _sum(weights, None)


def check_rows(labels: Vector, scores: Vector, weights: Vector | None) -> None:
    """Check labels, scores and weights of n rows. Raises ValueError if there are none, or some are not valid."""
    if labels.shape != scores.shape or labels.ndim != 1 or not len(labels):
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must be vectors of one length, at least 1")
    if not np.all((labels == 0) | (labels == 1)):
        raise ValueError("labels must be 0 or 1")
    if np.isnan(scores).any():
        raise ValueError("scores must not be NaN")
    if weights is not None and not (weights.shape == labels.shape and weights.min() >= 0 and weights.max() > 0):
        raise ValueError("weights must be one per row, at least 0, and not all 0")
