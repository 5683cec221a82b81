"""Search for numbers that a schema uses in a way that throws away what they tell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrm.data.inspect.columns import DenseColumn
from dlrm.data.inspect.prediction import (
    Prediction,
    ValueCounts,
    assign_ranges,
    predict_by_group,
    predict_by_number,
    predict_by_value,
)

NUM_RANGES = 64
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


def find_better_use(
    column: DenseColumn, labels: NDArray[np.float32], is_first_fold: NDArray[np.bool_]
) -> BetterUse | None:
    """Find out whether the values as ids, or ranges of them, predict better than the numbers; None if they do not.

    labels, is_first_fold: [n], those of the rows of `column`.
    """
    numbers, codes = column.distinct_and_codes
    if len(numbers) < 2:
        return None
    counts = ValueCounts.count(codes, len(numbers), labels == 1, is_first_fold.astype(np.int64))
    as_number = predict_by_number(counts, numbers)
    ways: list[tuple[str, Prediction]] = [
        ("ranges", predict_by_group(counts, assign_ranges(numbers, counts, NUM_RANGES)))
    ]
    if len(numbers) > NUM_RANGES and np.all(numbers == np.floor(numbers)):
        ways.append(("ids", predict_by_value(counts)))
    how, best = max(ways, key=lambda way: way[1].gain.mean)
    if not best.compare(as_number).is_certain or best.auc < as_number.auc + MIN_AUC_GAIN:
        return None
    return BetterUse(how, best.auc, as_number.auc)
