"""Search for a value that occurs with one label alone, in so many rows that it is no chance: it may tell the label.

How likely that is by chance depends on how much the rates of the other values differ. A site of which nobody clicked an
ad is nothing strange among sites that differ; a kind of row that always has label 1 is, where all others are alike. So
rates are taken to be beta-distributed, with the spread of those values that occur with both labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.data.inspect.prediction import ValueCounts

MIN_ROWS = 30
"""Least number of rows with a value that may tell the label."""
_MAX_CHANCE = 1e-6
"""Largest probability that a column has such a value by chance."""
_MIN_CORRELATION = 1e-9
"""Least correlation of labels that is not taken for 0: below, rounding would be larger."""
_MAX_SHOWN = 40
"""Largest number of characters of a value in a message."""


@dataclass(frozen=True)
class PureValue:
    """A value with which one label alone occurs."""

    code: int
    """Index of the value among the distinct ones; their number where it is a missing value."""
    num_rows: int
    label: int
    """0 or 1."""

    def describe(self, distinct: Sequence[object] | pl.Series) -> str:
        """Describe it in words that go on from the name of the column. distinct: the values in the order of codes."""
        text = "a missing value" if self.code == len(distinct) else repr(distinct[self.code])
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        return f"has {shown} in {self.num_rows:,} rows, all with label {self.label}"


def find_pure_value(counts: ValueCounts) -> PureValue | None:
    """Find the most frequent value that occurs with one label alone, with label 1 rather than 0; None if that may be
    chance."""
    rows, positives = counts.rows.sum(axis=0), counts.positives.sum(axis=0)
    is_frequent = rows >= MIN_ROWS
    is_pure = is_frequent & ((positives == 0) | (positives == rows))
    if not is_pure.any():
        return None
    rate = float(positives.sum() / rows.sum())
    if not 0.0 < rate < 1.0:
        return None
    is_mixed = is_frequent & ~is_pure
    correlation = _estimate_correlation(rows[is_mixed], positives[is_mixed])
    limit = log(_MAX_CHANCE / np.count_nonzero(is_frequent))
    for label, of_label in ((1, positives == rows), (0, positives == 0)):
        code = int(np.argmax(np.where(is_pure & of_label, rows, 0)))
        num_rows = int(rows[code])
        if (is_pure & of_label)[code] and _log_chance(num_rows, rate if label else 1.0 - rate, correlation) < limit:
            return PureValue(code, num_rows, label)
    return None


def count_values_of_lists(
    codes: NDArray[np.int64],
    lengths: NDArray[np.int32],
    num_values: int,
    labels: NDArray[np.bool_],
    folds: NDArray[np.int64],
) -> ValueCounts:
    """Count the rows whose list has a value, each row once. codes: [sum of lengths], -1 = missing; others: [n]."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.unique(rows * (num_values + 1) + np.where(codes < 0, num_values, codes))
    row_of, code_of = np.divmod(places, num_values + 1)
    return ValueCounts.count(code_of, num_values, labels[row_of], folds[row_of])


def _estimate_correlation(rows: NDArray[np.float64], positives: NDArray[np.float64]) -> float:
    """Estimate the correlation of the labels of two rows with the same value by the method of moments; 0 if there is
    none. rows, positives: [k], those of each value."""
    num_rows = float(rows.sum())
    if len(rows) < 2:
        return 0.0
    rate = float(positives.sum()) / num_rows
    chance = rate * (1.0 - rate)
    excess = float((rows * (positives / rows - rate) ** 2).sum()) - (len(rows) - 1) * chance
    spread = excess / (num_rows - float((rows**2).sum()) / num_rows)
    return min(max(spread / chance, 0.0), 0.999)


def _log_chance(num_rows: int, rate: float, correlation: float) -> float:
    """Compute the logarithm of the probability that `num_rows` rows of a value all have the label whose rate is `rate`,
    if the rates of values are beta-distributed and labels of rows with the same value have this correlation."""
    if correlation < _MIN_CORRELATION:
        return num_rows * log(rate)
    size = 1.0 / correlation - 1.0
    a = rate * size
    return lgamma(a + num_rows) - lgamma(a) - lgamma(size + num_rows) + lgamma(size)
