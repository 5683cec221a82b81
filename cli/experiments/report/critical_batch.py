"""Critical batch of a method, fitted to the samples to a target at several batches, and the noise scale beside it."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from cli.experiments.trials.results import TrialResult
from dlrm.record.intervals import find_student_quantile

MIN_BATCHES = 3
"""Number of batches below which there is no fit: it has two parameters."""
MAX_FACTOR = 100.0
"""Factor beyond the smallest and the largest batch within which the critical batch is looked for."""
_NUM_GRID = 200
_PRECISION = 1e-8
"""Precision of the logarithm of a critical batch."""
AGREEMENT_FACTOR = 2.0
"""Factor up to which a fitted critical batch and a noise scale agree: both are accurate to a factor, not to a
percent."""
Agreement = Literal["agree", "disagree", "open"]
"""Verdict on two numbers: `open` if their bounds leave both possible, or if one has no bounds."""


@dataclass(frozen=True)
class CriticalBatchFit:
    """Fit of samples(B) = samples_min (1 + B / B_crit)."""

    critical_batch: float
    """B_crit in samples: there a run takes twice the fewest steps and twice the fewest samples."""
    min_samples: float
    """Fewest samples, of a batch far below B_crit."""
    low: float | None = None
    """Lower bound of the 95 % interval of B_crit, 0 if it is at the limit of the search; None if a batch has one
    seed."""
    high: float | None = None
    """Upper bound, infinite if it is at the limit of the search."""
    is_at_limit: bool = False
    """Whether B_crit is at a limit of the search: the batches are all far below, or all far above it."""

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
    """Fit the critical batch to the samples to the target, one for each seed, by batch; None for too few batches.

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
    bounds = [curves.find_bound(best, end, margin) for end in (curves.grid[0], curves.grid[-1])]
    low, high = (math.exp(bound) if (beyond := curves.find_beyond(bound)) is None else beyond for bound in bounds)
    return CriticalBatchFit(critical, fewest, low, high, is_at_limit)


class _Curves:
    """Curves of all critical batches, each at the level that fits best; critical batches are given as logarithms."""

    def __init__(self, logs: Mapping[int, Sequence[float]]) -> None:
        """Take the logarithms of samples, one for each seed, by batch."""
        # The scatter of seeds about the mean of their batch is in every fit alike.
        self._points = [(batch, statistics.fmean(values), len(values)) for batch, values in logs.items()]
        self._num_values = sum(count for *_, count in self._points)
        lowest, highest = math.log(min(logs) / MAX_FACTOR), math.log(max(logs) * MAX_FACTOR)
        self.grid = [lowest + (highest - lowest) * number / _NUM_GRID for number in range(_NUM_GRID + 1)]
        """Critical batches among which the search begins, from limit to limit."""

    def find_level(self, log_critical: float) -> tuple[float, float]:
        """Find the logarithm of the fewest samples with the least sum of squares; return that sum and it."""
        critical = math.exp(log_critical)
        rests = [(log - math.log1p(batch / critical), count) for batch, log, count in self._points]
        level = sum(count * rest for rest, count in rests) / self._num_values
        return sum(count * (rest - level) ** 2 for rest, count in rests), level

    def find_best(self) -> float:
        """Find the critical batch with the least sum of squares."""
        # Not before it is needed: other commands run without the library.
        from scipy import optimize

        # The sum of squares may have two valleys: the grid finds the deeper one.
        start = min(range(len(self.grid)), key=lambda number: self._compute_squares(self.grid[number]))
        valley = self.grid[max(start - 1, 0)], self.grid[min(start + 1, _NUM_GRID)]
        options = {"xatol": _PRECISION}
        found: Any = optimize.minimize_scalar(self._compute_squares, bounds=valley, method="bounded", options=options)
        return float(found.x)

    def find_bound(self, best: float, end: float, margin: float) -> float:
        """Find the critical batch farthest from `best`, towards `end`, whose sum of squares is within `margin` of the
        least one."""
        from scipy import optimize

        most = self._compute_squares(best) + margin
        if self._compute_squares(end) <= most:
            return end
        between = [point for point in self.grid if min(best, end) < point < max(best, end)]
        points = [end, *sorted(between, key=lambda point: abs(point - end)), best]
        first = next(number for number, point in enumerate(points) if self._compute_squares(point) <= most)

        def compute_rest(point: float) -> float:
            return self._compute_squares(point) - most

        return float(cast("Any", optimize.brentq(compute_rest, points[first], points[first - 1], xtol=_PRECISION)))

    def find_beyond(self, log_critical: float) -> float | None:
        """Return what a critical batch at a limit of the search stands for, 0 or infinity; None within them."""
        if log_critical < self.grid[0] + 1e-3:
            return 0.0
        return math.inf if log_critical > self.grid[-1] - 1e-3 else None

    def _compute_squares(self, log_critical: float) -> float:
        return self.find_level(log_critical)[0]


@dataclass(frozen=True)
class NoiseScale:
    """Bounds of the median noise scale of several runs, in samples: both the same if it is known."""

    low: float
    high: float
    """Upper bound, which may be infinite."""

    @property
    def value(self) -> float | None:
        """Median itself; None if only its bounds are known."""
        return self.low if self.low == self.high else None


def find_median_noise(results: Iterable[TrialResult]) -> NoiseScale | None:
    """Find the median of the noise scales at the end of runs; None if no run reports one.

    A run in which noise hides the gradient has a lower bound alone, `noise_scale_low`. Such runs have large noise
    scales, and without them the median would be too low. So the median is at least the one with these runs at their
    lower bounds, and at most the one with these runs above all others.
    """
    lows: list[float] = []
    highs: list[float] = []
    for result in results:
        value, low = result.metrics.get("noise_scale"), result.metrics.get("noise_scale_low")
        if value is not None and value > 0.0:
            lows.append(value)
            highs.append(value)
        elif low is not None and low > 0.0:
            lows.append(low)
            highs.append(math.inf)
    return NoiseScale(statistics.median(lows), statistics.median(highs)) if lows else None


def decide_agreement(fit: CriticalBatchFit, noise: NoiseScale) -> Agreement:
    """Decide whether a critical batch and a noise scale are within AGREEMENT_FACTOR of each other, by their bounds.

    A critical batch without an interval, with one seed at a batch, leaves that open.
    """
    if fit.low is None or fit.high is None:
        return "open"
    lowest, highest = fit.low / noise.high, fit.high / noise.low
    if lowest >= 1.0 / AGREEMENT_FACTOR and highest <= AGREEMENT_FACTOR:
        return "agree"
    return "disagree" if highest < 1.0 / AGREEMENT_FACTOR or lowest > AGREEMENT_FACTOR else "open"
