"""How well one column alone tells the label: what is too good to be true gives the label away.

Rates are fitted on one half of the rows and measured, as AUC, on the other. A value's rate is smoothed towards the rate
of all rows, so that values seen once, such as those of an id, tell nothing about rows they were not fitted on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.inspect.columns import CategoricalColumn, DenseColumn
from dlrm.metrics.binary import auc

SMOOTHING = 10.0
"""Rows of the mean rate that every value gets beside its own."""
NUM_RANGES = 100
"""Of a dense column, of equally many rows."""
MIN_OF_A_CLASS = 30
"""Rows of each class that a measurement takes."""
MIN_PRESENT_SHARE = 0.1
"""Of the rows, for the order of a dense column's values to be measured by itself."""


@dataclass(frozen=True)
class Tells:
    """How well a column tells the label."""

    auc: float
    by: str
    """What of it: such as `higher values`."""


@dataclass(frozen=True)
class Halves:
    """The labels of n rows, and which rows rates are fitted on."""

    labels: NDArray[np.float32]
    """[n]"""
    is_fitted_on: NDArray[np.bool_]
    """[n]"""

    @property
    def can_measure(self) -> bool:
        positives = self.labels == 1
        return all(
            np.count_nonzero(of_class & half) >= MIN_OF_A_CLASS
            for of_class in (positives, ~positives)
            for half in (self.is_fitted_on, ~self.is_fitted_on)
        )

    def auc_of_codes(self, codes: NDArray[np.int64], num_codes: int) -> float:
        """Of the rates of the codes [n], each within 0 to num_codes - 1."""
        fitted, measured = self.is_fitted_on, ~self.is_fitted_on
        rates = self._rates(codes[fitted], self.labels[fitted], num_codes)
        positives = np.bincount(codes[measured], self.labels[measured], num_codes).astype(np.float64)
        rows = np.bincount(codes[measured], minlength=num_codes).astype(np.float64)
        return _auc_of_groups(rates, positives, rows - positives)

    def auc_of_lists(self, codes: NDArray[np.int64], lengths: NDArray[np.int32], num_codes: int) -> float:
        """Of the mean rate of each row's codes; an empty list has the rate of all rows."""
        fitted = np.repeat(self.is_fitted_on, lengths)
        labels = np.repeat(self.labels, lengths)
        rates = self._rates(codes[fitted], labels[fitted], num_codes)
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        sums = np.bincount(row_of, rates[codes], len(lengths))
        scores = np.where(lengths > 0, sums / np.maximum(lengths, 1), self.labels[self.is_fitted_on].mean())
        return self.auc_of_scores(scores, ~self.is_fitted_on)

    def auc_of_scores(self, scores: NDArray[np.float64], rows: NDArray[np.bool_]) -> float:
        """Of the scores [n] on some of the rows."""
        return _known(auc(self.labels[rows], scores[rows])) if rows.any() else 0.5

    def _rates(self, codes: NDArray[np.int64], labels: NDArray[np.float32], num_codes: int) -> NDArray[np.float64]:
        positives = np.bincount(codes, labels, num_codes)
        mean = float(self.labels[self.is_fitted_on].mean())
        return (positives + SMOOTHING * mean) / (np.bincount(codes, minlength=num_codes) + SMOOTHING)


def tells_categorical(column: CategoricalColumn, halves: Halves) -> Tells:
    num_codes = len(column.distinct) + 1
    # The last one stands for a missing value.
    codes = np.where(column.codes < 0, num_codes - 1, column.codes)
    if column.lengths is not None:
        return Tells(halves.auc_of_lists(codes, column.lengths, num_codes), "the rate of its values")
    is_missing = (column.codes < 0).astype(np.int64)
    found = [Tells(halves.auc_of_codes(codes, num_codes), "the rate of its values")]
    if is_missing.any():
        found.insert(0, Tells(halves.auc_of_codes(is_missing, 2), "whether it is missing"))
    return max(found, key=lambda tells: tells.auc)


def tells_dense(column: DenseColumn, halves: Halves) -> Tells:
    is_missing = np.isnan(column.values)
    found: list[Tells] = []
    if is_missing.any():
        found.append(Tells(halves.auc_of_codes(is_missing.astype(np.int64), 2), "whether it is missing"))
    if np.mean(~is_missing) >= MIN_PRESENT_SHARE:
        fitted = halves.auc_of_scores(column.values, halves.is_fitted_on & ~is_missing)
        measured = halves.auc_of_scores(column.values, ~halves.is_fitted_on & ~is_missing)
        found.append(Tells(measured, "higher values") if fitted >= 0.5 else Tells(1.0 - measured, "lower values"))
    present = column.values[halves.is_fitted_on & ~is_missing]
    if len(present):
        edges = np.unique(np.quantile(present, np.linspace(0, 1, NUM_RANGES + 1)[1:-1]))
        ranges = np.searchsorted(edges, column.values)
        ranges[is_missing] = len(edges) + 1
        found.append(Tells(halves.auc_of_codes(ranges, len(edges) + 2), "ranges of its values"))
    return max(found, key=lambda tells: tells.auc, default=Tells(0.5, "nothing"))


def _auc_of_groups(
    scores: NDArray[np.float64], positives: NDArray[np.float64], negatives: NDArray[np.float64]
) -> float:
    """scores [k]; positives, negatives [k]: how many of each have that score."""
    labels = np.repeat([1, 0], len(scores))
    return _known(auc(labels, np.tile(scores, 2), np.concatenate([positives, negatives])))


def _known(measured: float | None) -> float:
    """0.5 where there are rows of one class alone."""
    return 0.5 if measured is None else measured
