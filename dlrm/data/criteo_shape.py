"""The shape of Criteo's rows, and the form in which their dense values are delivered."""

import numpy as np
from numpy.typing import NDArray

NUM_DENSE = 13
NUM_FEATURES = 26
DENSE_NAMES = tuple(f"I{number}" for number in range(1, NUM_DENSE + 1))
FEATURE_NAMES = tuple(f"C{number}" for number in range(1, NUM_FEATURES + 1))
COLUMN_NAMES = ("label", *DENSE_NAMES, *FEATURE_NAMES)

MISSING_DENSE = np.float32(-1.0)
"""A missing dense value as delivered; a present one is at least 0."""


def delivered_dense(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """log(1 + max(value, 0)) where a value is present, MISSING_DENSE where it is NaN."""
    delivered = np.log1p(np.maximum(values, 0.0)).astype(np.float32)
    delivered[np.isnan(values)] = MISSING_DENSE
    return delivered
