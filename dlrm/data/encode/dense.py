"""Encoders of dense columns: they turn raw values into dense features of the model."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dlrm.config import DenseColumn

MISSING_COUNT = np.float32(-1.0)
"""Feature of a missing value with transform `log`; a present value gives at least 0."""
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def is_missing_as_before(
    columns: Sequence[DenseColumn], index: int, get_values: Callable[[int], NDArray[np.float64]]
) -> bool:
    """Whether a column and the one before it are elements of the same lists, and missing in the same rows.

    get_values: returns the values [n] of the column with an index. One indicator then serves both: mostly a whole list
    is missing.
    """
    if index == 0 or columns[index].element is None or columns[index - 1].name != columns[index].name:
        return False
    return np.array_equal(np.isnan(get_values(index - 1)), np.isnan(get_values(index)))


class DenseEncoder(BaseModel):
    """Encoder of one dense column, fitted on the training rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: DenseColumn
    mean: float = 0.0
    """Mean of the present values of the training rows; used by transform `standardise`."""
    standard_deviation: float = 1.0
    """Standard deviation of the present values of the training rows; 1 if all are equal."""
    has_indicator: bool = False
    """Whether there is a second feature, 1 where the value is missing and 0 elsewhere."""

    @property
    def names(self) -> list[str]:
        """Names of the one or two features that the column becomes."""
        name = self.column.feature
        return [name, f"{name} missing"] if self.has_indicator else [name]

    def encode(self, values: NDArray[np.float64]) -> list[NDArray[np.float32]]:
        """Compute the features of the column: one or two arrays [n], finite.

        values: [n], NaN where missing, otherwise within the range of float32.
        """
        if self.column.transform == "log":
            return [compute_log_counts(values)]
        is_missing = np.isnan(values)
        if self.column.transform == "standardise":
            with np.errstate(over="ignore"):
                # A value far outside the training data may exceed the range of float32.
                values = np.clip((values - self.mean) / self.standard_deviation, -_MAX_FLOAT32, _MAX_FLOAT32)
        feature = np.where(is_missing, 0.0, values).astype(np.float32)
        return [feature, is_missing.astype(np.float32)] if self.has_indicator else [feature]


def compute_log_counts(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Compute log(1 + max(value, 0)) of each value [n], and MISSING_COUNT where the value is NaN."""
    feature = np.log1p(np.maximum(values, 0.0)).astype(np.float32)
    feature[np.isnan(values)] = MISSING_COUNT
    return feature
