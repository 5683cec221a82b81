"""Area under the ROC curve and its standard error, both from the rows of each label at every distinct score."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]
"""Array [n] of any number type."""


@dataclass(frozen=True)
class LabelCounts:
    """Rows of one label at each of k distinct scores, in ascending order of score."""

    weights: Vector
    """[k] sums of the weights: int64 numbers of rows if all rows have the same weight, else float64."""
    squares: Vector
    """[k] sums of the squared weights, as above."""

    @property
    def total(self) -> int | float:
        return self.weights.sum().item()

    @property
    def below(self) -> Vector:
        """Sums of the weights at lower scores: [k]."""
        return np.cumsum(self.weights) - self.weights


@dataclass(frozen=True)
class RankedRows:
    """Rows of both labels by their score."""

    positives: LabelCounts
    negatives: LabelCounts

    @property
    def has_both_labels(self) -> bool:
        return bool(self.positives.total and self.negatives.total)

    def compute_auc(self) -> float | None:
        """Compute the area under the ROC curve; None if all labels are of one class.

        It is the share of (positive, negative) pairs in which the positive has the higher score, with equal scores
        counting half (Mann-Whitney). Pairs are counted in integers, up to 4e9 rows. With weights, a pair counts as the
        product of the weights of its rows, and the count is in float64.
        """
        if not self.has_both_labels:
            return None
        positives, negatives = self.positives, self.negatives
        twice_pairs_won = np.sum(positives.weights * (2 * negatives.below + negatives.weights)).item()
        return twice_pairs_won / (2 * positives.total * negatives.total)

    def compute_standard_error(self) -> float | None:
        """Compute the standard error of the AUC; None if a label has fewer than two rows with a weight.

        DeLong et al., "Comparing the areas under two or more correlated receiver operating characteristic curves",
        1988: the variance between positives of the share of negatives that each one beats, over their number, plus the
        same for negatives. Weighted rows count as (sum w)^2 / sum w^2 rows, which is our addition.
        """
        if not self.has_both_labels:
            return None
        positives = _compute_variance_of_mean(self.positives, self.negatives)
        negatives = _compute_variance_of_mean(self.negatives, self.positives)
        return None if positives is None or negatives is None else math.sqrt(positives + negatives)


def rank_rows(labels: Vector, scores: Vector, weights: Vector | None = None) -> RankedRows:
    """Count the rows of each label by score. labels: [n], 0 or 1. scores: [n], not NaN. weights: [n], at least 0."""
    order = np.argsort(scores)
    ordered_scores, is_positive = scores[order], labels[order] == 1
    last_of_score = np.append(np.flatnonzero(ordered_scores[1:] != ordered_scores[:-1]), len(scores) - 1)

    def sum_by_score(values: Vector) -> Vector:
        return np.diff(np.cumsum(values)[last_of_score], prepend=0)

    if weights is None:
        positives = sum_by_score(is_positive.astype(np.int64))
        negatives = np.diff(last_of_score, prepend=-1) - positives
        return RankedRows(LabelCounts(positives, positives), LabelCounts(negatives, negatives))
    ordered = weights[order].astype(np.float64)
    counts = [
        LabelCounts(sum_by_score(ordered * mask), sum_by_score(np.square(ordered) * mask))
        for mask in (is_positive, ~is_positive)
    ]
    return RankedRows(*counts)


def _compute_variance_of_mean(rows: LabelCounts, others: LabelCounts) -> float | None:
    """Compute the variance of the mean, over `rows`, of the share of `others` with a lower score; None for one row."""
    shares = (others.below + others.weights / 2) / others.total
    covariance = compute_covariance_of_means(shares[None], rows.weights, rows.squares)
    return None if covariance is None else float(covariance[0, 0])


def compute_covariance_of_means(values: Vector, weights: Vector, squares: Vector) -> Vector | None:
    """Compute the covariance [k, k] of the weighted means of `values` [k, m]; None for fewer than two rows.

    weights, squares: [m], sums of the weights of the rows that have each value, and of their squared weights.
    """
    # In float64: the square of a count of rows may be beyond int64.
    total = float(weights.sum())
    effective_rows = total**2 / float(squares.sum())
    if effective_rows < 1 + 1e-9:
        return None
    deviations = values - (values @ weights / total)[:, None]
    return (deviations * squares) @ deviations.T / total**2 * effective_rows / (effective_rows - 1)
