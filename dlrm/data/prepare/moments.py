"""Mean and variance of a column, computed part by part and then merged.

The merging follows Chan, Golub, LeVeque: "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
1979.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Moments:
    """Moments of the present values of a column over some rows; `+` merges those of disjoint rows."""

    num_present: int = 0
    num_missing: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""

    @classmethod
    def from_values(cls, values: NDArray[np.float64]) -> "Moments":
        """Compute the moments of `values`: [n], finite, NaN where missing."""
        present = values[~np.isnan(values)]
        if not len(present):
            return cls(num_missing=len(values))
        # Deviations are taken from a value of the column, so that equal values give a variance of exactly 0.
        deviations = present - present[0]
        mean = float(deviations.mean())
        squares = float(np.square(deviations - mean).sum())
        return cls(len(present), len(values) - len(present), float(present[0]) + mean, squares)

    def __add__(self, other: "Moments") -> "Moments":
        num_missing = self.num_missing + other.num_missing
        if not self.num_present or not other.num_present:
            some = self if self.num_present else other
            return Moments(some.num_present, num_missing, some.mean, some.squares)
        num_present = self.num_present + other.num_present
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.num_present / num_present)
        between = difference * difference * (self.num_present * other.num_present / num_present)
        return Moments(num_present, num_missing, mean, self.squares + other.squares + between)

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the present values; 1 where all are equal or there are none."""
        deviation = math.sqrt(self.squares / self.num_present) if self.num_present else 0.0
        return deviation or 1.0
