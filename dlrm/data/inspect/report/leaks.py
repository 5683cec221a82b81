"""Measurement of how well a column alone predicts the label: too good a result means a leak, or a poor use.

The rate of label 1 of each value is fitted on one half of the rows and measured, as AUC, on the other. It is smoothed
towards the rate of all rows, so that values seen once, such as ids, predict nothing on other rows.
"""

import hashlib
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.inspect.judge.giveaways import find_pure_value, find_pure_value_of_lists
from dlrm.data.inspect.judge.prediction import (
    FoldCounts,
    Prediction,
    assign_ranges,
    predict_by_group,
    predict_by_number,
    predict_by_value,
)
from dlrm.data.inspect.report.gather import CategoricalColumn, DenseColumn
from dlrm.metrics.binary import auc

SMOOTHING = 10.0
"""Number of rows with the mean rate that are added to the rows of every value."""
NUM_RANGES = 100
"""Number of ranges of a dense column, with equally many rows each."""
MIN_CLASS_ROWS = 30
"""Least number of rows of each class, in each half, for a measurement."""
MIN_PRESENT_SHARE = 0.1
"""Share of rows with a present value from which the order of a dense column's values is measured too."""


@dataclass(frozen=True)
class LeakMeasure:
    """Measure of how well one column predicts the label, and by which property."""

    auc: float
    by: str
    """Property of the column that predicts label 1, such as `higher values`."""


@dataclass(frozen=True)
class Halves:
    """The labels of n rows, and the split of the rows into a half to fit rates on and a half to measure them on."""

    labels: NDArray[np.float32]
    """[n], 0 or 1."""
    is_fitted_on: NDArray[np.bool_]
    """[n], true for rows that rates are fitted on."""

    @property
    def can_measure(self) -> bool:
        nothing, folds = np.zeros(len(self.labels), dtype=np.int64), self.is_fitted_on.astype(np.int64)
        return FoldCounts.count(nothing, 1, self.labels == 1, folds).has_both_classes(MIN_CLASS_ROWS)

    def measure_codes(self, codes: NDArray[np.int64], num_codes: int) -> float:
        """Measure the AUC of scoring each row by the rate of its code. codes: [n], each in [0, num_codes)."""
        fitted, measured = self.is_fitted_on, ~self.is_fitted_on
        rates = self._fit_rates(codes[fitted], self.labels[fitted], num_codes)
        positives = np.bincount(codes[measured], self.labels[measured], num_codes).astype(np.float64)
        rows = np.bincount(codes[measured], minlength=num_codes).astype(np.float64)
        classes = np.repeat([1, 0], num_codes)
        return _replace_undefined(auc(classes, np.tile(rates, 2), np.concatenate([positives, rows - positives])))

    def measure_lists(self, codes: NDArray[np.int64], lengths: NDArray[np.int32], num_codes: int) -> float:
        """Measure the AUC of scoring each row by the mean rate of its codes; an empty list has the rate of all rows.

        codes: [sum of lengths], each in [0, num_codes). lengths: [n].
        """
        fitted = np.repeat(self.is_fitted_on, lengths)
        labels = np.repeat(self.labels, lengths)
        rates = self._fit_rates(codes[fitted], labels[fitted], num_codes)
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        sums = np.bincount(row_of, rates[codes], len(lengths))
        scores = np.where(lengths > 0, sums / np.maximum(lengths, 1), self.labels[self.is_fitted_on].mean())
        return self.measure_scores(scores, ~self.is_fitted_on)

    def measure_scores(self, scores: NDArray[np.float64], rows: NDArray[np.bool_]) -> float:
        """Measure the AUC of `scores` [n] on the rows where `rows` [n] is true; 0.5 where it is undefined."""
        return _replace_undefined(auc(self.labels[rows], scores[rows])) if rows.any() else 0.5

    def _fit_rates(self, codes: NDArray[np.int64], labels: NDArray[np.float32], num_codes: int) -> NDArray[np.float64]:
        positives = np.bincount(codes, labels, num_codes)
        mean = float(self.labels[self.is_fitted_on].mean())
        return (positives + SMOOTHING * mean) / (np.bincount(codes, minlength=num_codes) + SMOOTHING)


def measure_categorical(column: CategoricalColumn, halves: Halves) -> LeakMeasure:
    num_codes = len(column.distinct) + 1
    # The last code stands for a missing value.
    codes = np.where(column.codes < 0, num_codes - 1, column.codes)
    if column.lengths is not None:
        return LeakMeasure(halves.measure_lists(codes, column.lengths, num_codes), "the rate of its values")
    is_missing = (column.codes < 0).astype(np.int64)
    found = [LeakMeasure(halves.measure_codes(codes, num_codes), "the rate of its values")]
    if is_missing.any():
        found.insert(0, LeakMeasure(halves.measure_codes(is_missing, 2), "whether it is missing"))
    return max(found, key=lambda prediction: prediction.auc)


def measure_dense(column: DenseColumn, halves: Halves) -> LeakMeasure:
    is_missing = np.isnan(column.values)
    found: list[LeakMeasure] = []
    if is_missing.any():
        found.append(LeakMeasure(halves.measure_codes(is_missing.astype(np.int64), 2), "whether it is missing"))
    if np.mean(~is_missing) >= MIN_PRESENT_SHARE:
        fitted = halves.measure_scores(column.values, halves.is_fitted_on & ~is_missing)
        measured = halves.measure_scores(column.values, ~halves.is_fitted_on & ~is_missing)
        found.append(
            LeakMeasure(measured, "higher values") if fitted >= 0.5 else LeakMeasure(1.0 - measured, "lower values")
        )
    present = column.values[halves.is_fitted_on & ~is_missing]
    if len(present):
        edges = np.unique(np.quantile(present, np.linspace(0, 1, NUM_RANGES + 1)[1:-1]))
        ranges = np.searchsorted(edges, column.values)
        ranges[is_missing] = len(edges) + 1
        found.append(LeakMeasure(halves.measure_codes(ranges, len(edges) + 2), "ranges of its values"))
    return max(found, key=lambda prediction: prediction.auc, default=LeakMeasure(0.5, "nothing"))


def describe_giveaway(column: DenseColumn | CategoricalColumn, labels: NDArray[np.float32]) -> str:
    """Describe the value, or the value in lists, that gives the label away, in words to follow the column's name; empty
    if none does."""
    if isinstance(column, DenseColumn):
        distinct, codes = column.distinct_and_codes
        lengths, distinct = None, distinct.tolist()
    else:
        codes, distinct, lengths = column.codes.astype(np.int64, copy=False), column.distinct, column.lengths
    if lengths is None:
        pure = find_pure_value(codes, len(distinct), labels == 1)
    else:
        pure = find_pure_value_of_lists(codes, lengths, len(distinct), labels == 1)
    return "" if pure is None else pure.describe(distinct)


def _replace_undefined(measured: float | None) -> float:
    """Replace an undefined AUC, of rows of one class alone, by 0.5."""
    return 0.5 if measured is None else measured


NUM_FEW_RANGES = 64
MIN_AUC_GAIN = 0.02
"""Least difference of two AUCs that is worth a warning."""


@dataclass(frozen=True)
class BetterUse:
    """A use of a dense column that predicts the label far better than its numbers do."""

    how: str
    """`ids` or `ranges`."""
    auc: float
    number_auc: float
    """AUC of a logistic regression on the numbers."""


def find_better_use(column: DenseColumn, halves: Halves) -> BetterUse | None:
    """Find out whether the values as ids, or ranges of them, predict better than the numbers; None if they do not."""
    numbers, codes = column.distinct_and_codes
    if len(numbers) < 2:
        return None
    counts = FoldCounts.count(codes, len(numbers), halves.labels == 1, halves.is_fitted_on.astype(np.int64))
    as_number = predict_by_number(counts, numbers)
    ways: list[tuple[str, Prediction]] = [
        ("ranges", predict_by_group(counts, assign_ranges(numbers, counts, NUM_FEW_RANGES)))
    ]
    if len(numbers) > NUM_FEW_RANGES and np.all(numbers == np.floor(numbers)):
        ways.append(("ids", predict_by_value(counts)))
    how, best = max(ways, key=lambda way: way[1].gain.mean)
    if not best.compare(as_number).is_certain or best.auc < as_number.auc + MIN_AUC_GAIN:
        return None
    return BetterUse(how, best.auc, as_number.auc)


class SameColumns:
    """Finder of columns with the same content: a value of one always occurs with the same value of the other."""

    def __init__(self) -> None:
        self._names: defaultdict[bytes, list[str]] = defaultdict(list)

    def add_dense(self, column: DenseColumn) -> None:
        # Make the bytes of all NaNs equal, and those of 0.0 and -0.0.
        values = np.where(np.isnan(column.values), np.nan, column.values + 0.0)
        self._names[hashlib.blake2b(b"dense" + values.tobytes()).digest()].append(column.name)

    def add_categorical(self, column: CategoricalColumn) -> None:
        """Add a column. Values are identified by the order in which they first occur, not by their names."""
        if len(column.distinct) < 2:
            # Constant columns have a warning of their own.
            return
        _, first, code_of = np.unique(column.codes, return_index=True, return_inverse=True)
        code_by_first_use = np.empty(len(first), dtype=np.int64)
        code_by_first_use[np.argsort(first)] = np.arange(len(first))
        content = code_by_first_use[code_of].tobytes() + (b"" if column.lengths is None else column.lengths.tobytes())
        self._names[hashlib.blake2b(content).digest()].append(column.name)

    def find(self) -> list[tuple[list[str], str]]:
        """Return each group of columns with the same content: their names, and a message."""
        return [
            (names, f"{', '.join(names[:-1])} and {names[-1]} have the same content in every row: keep one of them")
            for names in self._names.values()
            if len(names) > 1
        ]
