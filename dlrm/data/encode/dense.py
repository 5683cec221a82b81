"""Dense columns: how their values are delivered to the model."""

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dlrm.config import DenseColumn

MISSING_COUNT = np.float32(-1.0)
"""A missing value under `log`, where a present one is at least 0."""
_LARGEST = float(np.finfo(np.float32).max)


class DenseEncoder(BaseModel):
    """One dense column, fitted on the training rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: DenseColumn
    mean: float = 0.0
    """Of the training rows' present values; used to standardise."""
    standard_deviation: float = 1.0
    """Likewise; 1 where all values are the same."""
    has_indicator: bool = False
    """Whether a second feature says, by 1, where the value is missing."""

    @property
    def names(self) -> list[str]:
        """Of the features it delivers."""
        return [self.column.name, f"{self.column.name} missing"] if self.has_indicator else [self.column.name]

    def encode(self, values: NDArray[np.float64]) -> list[NDArray[np.float32]]:
        """The features [n], one or two, all finite, of the values [n], NaN = missing.

        The others are within the range of float32.
        """
        if self.column.transform == "log":
            return [log_of_counts(values)]
        is_missing = np.isnan(values)
        if self.column.transform == "standardise":
            with np.errstate(over="ignore"):
                # Far from anything in training, a value may leave the range of float32.
                values = np.clip((values - self.mean) / self.standard_deviation, -_LARGEST, _LARGEST)
        delivered = np.where(is_missing, 0.0, values).astype(np.float32)
        return [delivered, is_missing.astype(np.float32)] if self.has_indicator else [delivered]


def log_of_counts(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """log(1 + max(value, 0)) where a value is present, MISSING_COUNT where it is NaN."""
    delivered = np.log1p(np.maximum(values, 0.0)).astype(np.float32)
    delivered[np.isnan(values)] = MISSING_COUNT
    return delivered
