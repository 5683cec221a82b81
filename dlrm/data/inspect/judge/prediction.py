"""Prediction of the label by one column alone, measured on rows that it was not fitted on.

The rows are in two folds. What predicts the rows of one fold is fitted on the other, so that every row is a held-out
row once. All that is needed are the rows and positives of each value in each fold, however many rows there are.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dlrm.linear.inputs import DenseInputs, LinearInputs
from dlrm.linear.newton import LogisticLoss, minimise
from dlrm.metrics.binary import auc

STRENGTHS = (3.0, 30.0, 300.0)
"""Candidate numbers of rows with the mean rate that are added to the rows of every value; the best one is used."""
NUM_ERRORS = 3.0
"""Number of standard errors from which a gain is not taken for chance: files have dozens of columns."""
_MIN_GAIN = 1e-7
"""Gain in nats a row that is not taken for rounding."""
_TOLERANCE = 1e-10
"""Fall of the mean log-loss below which a logistic fit ends."""
_RIDGE = 1e-6
"""Strength of the L2 penalty of the logistic fit, as a share of the rows: without it there is no finite fit where a
number separates the classes."""
_MAX_LOGIT = 20.0
NUM_FINE_RANGES = 1000
"""Number of ranges, with their mean numbers, that the logistic fit reads instead of more distinct numbers."""

Rates = NDArray[np.float64]
"""[2, k], predicted probability of label 1 for the rows of each fold that have each of k values."""


@dataclass(frozen=True)
class Gain:
    """Mean difference of the log losses of two predictions, in nats a row, with its standard error."""

    mean: float
    standard_error: float

    @property
    def is_certain(self) -> bool:
        """Whether the difference is positive by more than chance explains."""
        return self.mean > max(NUM_ERRORS * self.standard_error, _MIN_GAIN)


@dataclass(frozen=True)
class FoldCounts:
    """Rows of a column by fold and value. The last of the k values stands for a missing one."""

    rows: NDArray[np.float64]
    """[2, k], number of rows in each fold with each value."""
    positives: NDArray[np.float64]
    """[2, k], number of these rows with label 1."""

    @classmethod
    def count(cls, codes: NDArray[np.int64], num_values: int, labels: NDArray[np.bool_], folds: NDArray[np.int64]):
        """Count the rows of each value. codes: [n], from 0 to num_values - 1, or -1 = missing. folds: [n], 0 or 1."""
        places = folds * (num_values + 1) + np.where(codes < 0, num_values, codes)
        rows = np.bincount(places, minlength=2 * (num_values + 1))
        positives = np.bincount(places[labels], minlength=2 * (num_values + 1))
        return cls(rows.reshape(2, -1).astype(np.float64), positives.reshape(2, -1).astype(np.float64))

    @property
    def num_rows(self) -> float:
        return float(self.rows.sum())

    @cached_property
    def base_rates(self) -> Rates:
        """[2, 1], share of label 1 in each fold."""
        return self.positives.sum(axis=1, keepdims=True) / np.maximum(self.rows.sum(axis=1, keepdims=True), 1.0)

    def has_both_classes(self, min_class_rows: int) -> bool:
        """Whether each fold has at least `min_class_rows` rows of each class."""
        positives = self.positives.sum(axis=1)
        return bool(np.minimum(positives, self.rows.sum(axis=1) - positives).min() >= min_class_rows)

    def reorder(self, order: NDArray[np.int64]) -> "FoldCounts":
        """Return the counts of the values in another order. order: [k], the old place of each value."""
        return FoldCounts(self.rows[:, order], self.positives[:, order])

    def merge(self, groups: NDArray[np.int64]) -> "FoldCounts":
        """Merge values into groups. groups: [k], from 0 on; the last value is alone in the last group."""
        both = (self.rows, self.positives)
        merged = ([np.bincount(groups, of_fold).astype(np.float64) for of_fold in counts] for counts in both)
        return FoldCounts(*map(np.stack, merged))


@dataclass(frozen=True)
class Prediction:
    """Held-out prediction of the label from the values of one column."""

    counts: FoldCounts
    rates: Rates
    by_group: "Prediction | None" = None
    """The same prediction of groups of values, where it is the same for all values of a group."""

    @cached_property
    def auc(self) -> float:
        """Area under the ROC curve, averaged over both folds."""
        if self.by_group is not None:
            return self.by_group.auc
        return float(np.mean([self._compute_auc(fold) for fold in (0, 1)]))

    @cached_property
    def gain(self) -> Gain:
        """Gain over the constant prediction of the mean rate."""
        if self.by_group is not None:
            return self.by_group.gain
        return self.compare(predict_mean(self.counts))

    def compare(self, other: "Prediction") -> Gain:
        """Compute the gain of this prediction over another one of the same rows."""
        negatives = self.counts.rows - self.counts.positives
        at_positives = np.log(self.rates / other.rates)
        at_negatives = np.log((1.0 - self.rates) / (1.0 - other.rates))
        num_rows = max(self.counts.num_rows, 1.0)
        mean = (self.counts.positives * at_positives + negatives * at_negatives).sum() / num_rows
        square = (self.counts.positives * at_positives**2 + negatives * at_negatives**2).sum() / num_rows
        return Gain(float(mean), float(np.sqrt(max(square - mean**2, 0.0) / num_rows)))

    def _compute_auc(self, fold: int) -> float:
        positives = self.counts.positives[fold]
        weights = np.concatenate([positives, self.counts.rows[fold] - positives])
        labels = np.repeat([1, 0], len(positives))
        measured = auc(labels, np.tile(self.rates[fold], 2), weights) if weights.any() else None
        return 0.5 if measured is None else measured


def predict_mean(counts: FoldCounts) -> Prediction:
    """Predict the mean rate of the other fold, whatever the value."""
    return Prediction(counts, np.broadcast_to(_clip(counts.base_rates[::-1]), counts.rows.shape))


def predict_by_value(counts: FoldCounts) -> Prediction:
    """Predict by the rate of each value in the other fold, smoothed towards the mean rate.

    The smoothing is the one of STRENGTHS with the least held-out loss.
    """
    return max((_predict_smoothed(counts, strength) for strength in STRENGTHS), key=lambda found: found.gain.mean)


def predict_by_group(counts: FoldCounts, groups: NDArray[np.int64]) -> Prediction:
    """Predict by the rate of the group of each value; groups as for `FoldCounts.merge`."""
    by_group = predict_by_value(counts.merge(groups))
    return Prediction(counts, by_group.rates[:, groups], by_group)


def predict_by_number(counts: FoldCounts, numbers: NDArray[np.float64]) -> Prediction:
    """Predict by a logistic regression on the numbers alone; missing values have a rate of their own.

    numbers: [k - 1], finite, ascending, in the order of the values.
    """
    fine, means, groups = merge_neighbours(counts, numbers)
    present = fine.rows[:, :-1].sum(axis=0)
    # Divided first: squares of large numbers would not be finite.
    means = means / max(float(np.abs(means).max(initial=0.0)), 1e-300)
    means -= np.average(means, weights=present)
    deviation = float(np.sqrt(np.average(means**2, weights=present)))
    scaled = means / (deviation if deviation > 0 else 1.0)
    rates = _predict_smoothed(fine, STRENGTHS[0]).rates.copy()
    for fold in (0, 1):
        rates[fold, :-1] = _clip(_fit_logistic(scaled, fine.rows[1 - fold, :-1], fine.positives[1 - fold, :-1]))
    by_group = Prediction(fine, rates)
    return Prediction(counts, rates[:, groups], by_group)


def merge_neighbours(
    counts: FoldCounts, numbers: NDArray[np.float64]
) -> tuple[FoldCounts, NDArray[np.float64], NDArray[np.int64]]:
    """Merge neighbouring numbers if there are more than NUM_FINE_RANGES distinct ones.

    numbers: [k - 1], finite, ascending. Returns the counts of the merged values, their mean numbers, and the merged
    value of each value [k].
    """
    groups = assign_ranges(numbers, counts, NUM_FINE_RANGES)
    # Ranges that hold no value, beside a value with many rows, are closed up.
    groups = np.unique(groups, return_inverse=True)[1]
    merged, present = counts.merge(groups), counts.rows[:, :-1].sum(axis=0)
    scale = max(float(np.abs(numbers).max(initial=0.0)), 1e-300)
    sums = np.bincount(groups[:-1], present * (numbers / scale), int(groups[-1]))
    return merged, sums / np.bincount(groups[:-1], present, int(groups[-1])) * scale, groups


def assign_ranges(numbers: NDArray[np.float64], counts: FoldCounts, num_ranges: int) -> NDArray[np.int64]:
    """Assign ascending values to ranges with about equally many rows each; the missing value becomes the last group.

    numbers: [k - 1], ascending. Returns the groups [k] of all values, from 0 to at most num_ranges.
    """
    if len(numbers) <= num_ranges:
        return np.arange(len(numbers) + 1, dtype=np.int64)
    present = counts.rows[:, :-1].sum(axis=0)
    middles = np.cumsum(present) - present / 2
    return np.append((middles * num_ranges / present.sum()).astype(np.int64), num_ranges)


def _predict_smoothed(counts: FoldCounts, strength: float) -> Prediction:
    fitted = (counts.positives + strength * counts.base_rates) / (counts.rows + strength)
    return Prediction(counts, _clip(fitted[::-1]))


def _fit_logistic(x: NDArray[np.float64], rows: NDArray[np.float64], positives: NDArray[np.float64]) -> Rates:
    """Fit label rates to `x` [k] by a logistic regression on the rows and positives [k] of each value. Returns rates
    [k]."""
    num_rows = rows.sum()
    if not num_rows:
        return np.full(len(x), 0.5)
    inputs = LinearInputs(len(x), [DenseInputs(x[:, None])])
    loss = LogisticLoss(inputs, positives / np.maximum(rows, 1.0), rows / num_rows, np.full(2, _RIDGE))
    logits = np.clip(inputs.multiply(minimise(loss, np.zeros(2), _TOLERANCE)), -_MAX_LOGIT, _MAX_LOGIT)
    return 1.0 / (1.0 + np.exp(-logits))


def _clip(rates: Rates) -> Rates:
    """Keep rates away from 0 and 1, where the logarithm is not finite."""
    return np.clip(rates, 1e-9, 1.0 - 1e-9)
