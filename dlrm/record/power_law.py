"""Power laws E = a (x + d)^b + c, fitted by least squares, with 95 % intervals."""

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from dlrm.record.intervals import find_student_quantile

MIN_SIZES = 4
"""Least number of sizes: the law without d has three numbers, and what they leave over says how far it holds."""
_EXPONENTS = tuple(-0.01 * 1.01**number for number in range(695))
"""Values of b, from -0.01 to -10, among which the best is looked for."""


class Interval(NamedTuple):
    """Value with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


class Law(NamedTuple):
    """Law of given b and d, with the best a and c."""

    exponent: float
    offset: float
    """d."""
    squares: float
    """Sum of the squares that it leaves over."""
    slope: float
    """a."""
    mean_power: float
    """Mean of (x + d)^b over the points."""
    mean_error: float
    """Mean of E over the points."""
    length: float
    """Sum of the squares of (x + d)^b less their mean."""
    num_points: int

    def predict(self, size: float) -> tuple[float, float]:
        """Return E at a size, and its squared error from a and c, in squared errors of a point."""
        rest = (size + self.offset) ** self.exponent - self.mean_power
        return self.mean_error + self.slope * rest, 1.0 / self.num_points + rest**2 / self.length


def fit_law(exponent: float, offset: float, sizes: Sequence[float], errors: Sequence[float]) -> Law:
    """Fit a >= 0 and c for given b and d: a straight line over the powers of the sizes."""
    count = len(sizes)
    powers = [(size + offset) ** exponent for size in sizes]
    mean, mean_error = math.fsum(powers) / count, math.fsum(errors) / count
    powers, rest = [power - mean for power in powers], [error - mean_error for error in errors]
    length = math.fsum(map(mul, powers, powers))
    slope = max(math.fsum(map(mul, powers, rest)) / length, 0.0)
    squares = math.fsum((error - slope * power) ** 2 for error, power in zip(rest, powers, strict=True))
    return Law(exponent, offset, squares, slope, mean, mean_error, length, count)


class LawFit:
    """Laws that agree with some points: those whose squares are at most S (1 + t^2 / (n - p)).

    S are the least squares of n points with p numbers in the law, and t is Student's quantile. This is the interval of
    the delta method without its linearization (Bates & Watts 1988, section 6.1).
    """

    def __init__(self, laws: Sequence[Law], num_numbers: int) -> None:
        """Take the laws that were tried. num_numbers: p."""
        self.best = min(laws, key=lambda law: law.squares)
        num_free = self.best.num_points - num_numbers
        self._limit = self.best.squares * (1 + find_student_quantile(num_free) ** 2 / num_free)
        self.laws = [law for law in laws if law.squares <= self._limit]

    def predict(self, size: float) -> Interval:
        """Predict E at a size, with the bounds of all laws that agree with the points."""
        ends = [(law.predict(size), self._limit - law.squares) for law in self.laws]
        errors = [(value, math.sqrt(room * leverage)) for (value, leverage), room in ends]
        low, high = min(value - error for value, error in errors), max(value + error for value, error in errors)
        return Interval(self.best.predict(size)[0], low, high)


class SizeLaw:
    """Law E = a x^b + c over sizes x."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        """Fit the law to points (x, E), at least MIN_SIZES of them."""
        self._unit = max(size for size, _ in points)
        sizes, errors = [size / self._unit for size, _ in points], [error for _, error in points]
        self._fit = LawFit([fit_law(exponent, 0.0, sizes, errors) for exponent in _EXPONENTS], num_numbers=3)

    @property
    def exponent(self) -> Interval:
        """Exponent b; a bound at an end of the search is 0, or infinite."""
        exponents = [law.exponent for law in self._fit.laws]
        low, high = min(exponents), max(exponents)
        return Interval(
            self._fit.best.exponent,
            -math.inf if low == _EXPONENTS[-1] else low,
            0.0 if high == _EXPONENTS[0] else high,
        )

    def predict(self, size: float) -> Interval:
        """Predict E at a size."""
        return self._fit.predict(size / self._unit)
