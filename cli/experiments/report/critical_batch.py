"""Critical batch of a method, fitted to the samples that it takes to a target at several batches."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.experiments.trials.student import find_student_quantile

MIN_BATCHES = 3
"""Number of batches below which there is no fit: it has two parameters."""
MAX_FACTOR = 100.0
"""Factor beyond the smallest and the largest batch within which the critical batch is looked for."""
_NUM_GRID = 200
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_PRECISION = 1e-7


@dataclass(frozen=True)
class CriticalBatchFit:
    """Fit of samples(B) = samples_min (1 + B / B_crit)."""

    critical_batch: float
    """B_crit in samples: there a run takes twice the fewest steps and twice the fewest samples."""
    min_samples: float
    """Fewest samples, of a batch far below B_crit."""
    low: float | None = None
    """Lower bound of the 95 % interval of B_crit, 0 where it is at the limit of the search; None if a batch has one
    seed."""
    high: float | None = None
    """Upper bound, infinite where it is at the limit of the search."""
    is_at_limit: bool = False
    """Whether B_crit is at a limit of the search: the batches are all far below, or far above it, and tell no more."""

    @property
    def min_steps(self) -> float:
        """Fewest steps, of a batch far above B_crit."""
        return self.min_samples / self.critical_batch

    def compute_samples(self, batch: float) -> float:
        """Compute the samples to the target at a batch."""
        return self.min_samples * (1.0 + batch / self.critical_batch)

    def compute_steps(self, batch: float) -> float:
        """Compute the steps to the target at a batch."""
        return self.min_steps * (1.0 + self.critical_batch / batch)


def fit_critical_batch(samples: Mapping[int, Sequence[float]]) -> CriticalBatchFit | None:
    """Fit the critical batch to the samples to the target, one of each seed, by batch; None for too few batches.

    McCandlish et al. 2018 (arXiv 1812.06162), equation 2.11: (S / S_min - 1) (E / E_min - 1) = 1 for S steps and E
    samples, which with E = B S is E = E_min (1 + B / B_crit) and S = S_min (1 + B_crit / B), B_crit = E_min / S_min.
    Both have the same residuals in logarithms, so that one fit by least squares serves both.

    The interval has every B_crit whose sum of squares is at most t^2 s^2 above the least one (Bates & Watts 1988,
    "Nonlinear regression analysis and its applications", section 6.1): s^2 is the variance of seeds about the mean of
    their batch, pooled over the batches, and t is Student's quantile for its degrees of freedom.
    """
    if len(samples) < MIN_BATCHES:
        return None
    logs = {batch: [math.log(value) for value in values] for batch, values in samples.items()}
    curves = _Curves(logs)
    best = curves.find_best()
    critical, fewest = math.exp(best), math.exp(curves.find_level(best)[1])
    is_at_limit = curves.find_beyond(best) is not None
    if min(map(len, logs.values())) < 2:
        return CriticalBatchFit(critical, fewest, is_at_limit=is_at_limit)
    num_free = sum(len(values) - 1 for values in logs.values())
    variance = sum((len(values) - 1) * statistics.variance(values) for values in logs.values()) / num_free
    margin = find_student_quantile(num_free) ** 2 * variance
    bounds = [curves.find_bound(best, end, margin) for end in (curves.lowest, curves.highest)]
    low, high = (math.exp(bound) if (beyond := curves.find_beyond(bound)) is None else beyond for bound in bounds)
    return CriticalBatchFit(critical, fewest, low, high, is_at_limit)


class _Curves:
    """Curves of all critical batches, each at the level that fits best; critical batches are given as logarithms."""

    def __init__(self, logs: Mapping[int, Sequence[float]]) -> None:
        """Take the logarithms of samples, one of each seed, by batch."""
        # The scatter of seeds about the mean of their batch is in every fit alike.
        self._points = [(batch, statistics.fmean(values), len(values)) for batch, values in logs.items()]
        self._num_values = sum(count for *_, count in self._points)
        self.lowest, self.highest = math.log(min(logs) / MAX_FACTOR), math.log(max(logs) * MAX_FACTOR)

    def find_level(self, log_critical: float) -> tuple[float, float]:
        """Find the logarithm of the fewest samples that makes the sum of squares least; return that sum and it."""
        critical = math.exp(log_critical)
        rests = [(log - math.log1p(batch / critical), count) for batch, log, count in self._points]
        level = sum(count * rest for rest, count in rests) / self._num_values
        return sum(count * (rest - level) ** 2 for rest, count in rests), level

    def find_best(self) -> float:
        """Find the critical batch with the least sum of squares."""
        # The sum of squares may have two valleys: the grid finds the deeper one, the golden section its bottom.
        start = min(self._list_grid(), key=self._compute_squares)
        width = (self.highest - self.lowest) / _NUM_GRID
        low, high = max(start - width, self.lowest), min(start + width, self.highest)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        of_left, of_right = self._compute_squares(left), self._compute_squares(right)
        while high - low > _PRECISION:
            if of_left <= of_right:
                high, right, of_right = right, left, of_left
                left = high - _GOLDEN * (high - low)
                of_left = self._compute_squares(left)
            else:
                low, left, of_left = left, right, of_right
                right = low + _GOLDEN * (high - low)
                of_right = self._compute_squares(right)
        return (low + high) / 2.0

    def find_bound(self, best: float, end: float, margin: float) -> float:
        """Find the critical batch farthest from `best`, towards `end`, whose sum of squares is within `margin` of the
        least one."""
        most = self._compute_squares(best) + margin
        if self._compute_squares(end) <= most:
            return end
        between = [point for point in self._list_grid() if min(best, end) < point < max(best, end)]
        outside, inside = end, best
        for point in sorted(between, key=lambda point: abs(point - end)):
            if self._compute_squares(point) <= most:
                inside = point
                break
            outside = point
        while abs(outside - inside) > _PRECISION:
            middle = (outside + inside) / 2.0
            if self._compute_squares(middle) <= most:
                inside = middle
            else:
                outside = middle
        return inside

    def find_beyond(self, log_critical: float) -> float | None:
        """Return what a critical batch at a limit of the search stands for, 0 or infinity; None within them."""
        if log_critical < self.lowest + 1e-3:
            return 0.0
        return math.inf if log_critical > self.highest - 1e-3 else None

    def _compute_squares(self, log_critical: float) -> float:
        return self.find_level(log_critical)[0]

    def _list_grid(self) -> list[float]:
        width = (self.highest - self.lowest) / _NUM_GRID
        return [self.lowest + width * number for number in range(_NUM_GRID + 1)]
