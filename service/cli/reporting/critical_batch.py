"""Critical batch of a method, fitted to the samples that it takes to a target at several batches."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_BATCHES = 3
"""Number of batches below which there is no fit: it has two parameters."""
NUM_RESAMPLES = 1000
SEED = 0
"""Seed of the bootstrap, so that the same results make the same report."""
MAX_FACTOR = 100.0
"""Factor beyond the smallest and the largest batch within which the critical batch is looked for."""
_NUM_GRID = 30
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
    """Lower bound of the 95 % interval of B_crit, 0 where it is at the limit of the search; None where a batch has one
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
    Both have the same residuals in logarithms, so that one fit by least squares serves both. The interval is that of
    the percentile bootstrap over seeds: NUM_RESAMPLES times the seeds of each batch are drawn with replacement.
    """
    if len(samples) < MIN_BATCHES:
        return None
    logs = {batch: [math.log(value) for value in values] for batch, values in sorted(samples.items())}
    counts = {batch: len(values) for batch, values in logs.items()}
    best = _fit({batch: statistics.fmean(values) for batch, values in logs.items()}, counts)
    is_at_limit = _find_beyond(best.critical_batch, counts) is not None
    if min(counts.values()) < 2:
        return CriticalBatchFit(best.critical_batch, best.min_samples, is_at_limit=is_at_limit)
    generator = random.Random(SEED)
    found = sorted(
        _fit(
            {batch: statistics.fmean(generator.choices(values, k=len(values))) for batch, values in logs.items()},
            counts,
        ).critical_batch
        for _ in range(NUM_RESAMPLES)
    )
    bounds = found[round(0.025 * (NUM_RESAMPLES - 1))], found[round(0.975 * (NUM_RESAMPLES - 1))]
    low, high = (bound if (beyond := _find_beyond(bound, counts)) is None else beyond for bound in bounds)
    return CriticalBatchFit(best.critical_batch, best.min_samples, low, high, is_at_limit)


def _limit(batches: Mapping[int, int]) -> tuple[float, float]:
    return math.log(min(batches) / MAX_FACTOR), math.log(max(batches) * MAX_FACTOR)


def _find_beyond(critical_batch: float, batches: Mapping[int, int]) -> float | None:
    """Return what a critical batch at a limit of the search stands for, 0 or infinity; None within them."""
    lowest, highest = _limit(batches)
    if math.log(critical_batch) < lowest + 1e-3:
        return 0.0
    return math.inf if math.log(critical_batch) > highest - 1e-3 else None


def _fit(logs: Mapping[int, float], counts: Mapping[int, int]) -> CriticalBatchFit:
    """Fit by the mean logarithm of each batch, weighted by its seeds: the scatter about it is in every fit alike."""
    points = [(batch, log, counts[batch]) for batch, log in logs.items()]
    total = sum(counts.values())

    def find_level(log_critical: float) -> tuple[float, float]:
        """Return the sum of squares, and the logarithm of the fewest samples that makes it least."""
        critical = math.exp(log_critical)
        rests = [(log - math.log1p(batch / critical), count) for batch, log, count in points]
        level = sum(count * rest for rest, count in rests) / total
        return sum(count * (rest - level) ** 2 for rest, count in rests), level

    lowest, highest = _limit(counts)
    width = (highest - lowest) / _NUM_GRID
    # The sum of squares may have two valleys: the grid finds the deeper one, the golden section its bottom.
    start = min((lowest + width * number for number in range(_NUM_GRID + 1)), key=lambda log: find_level(log)[0])
    low, high = max(start - width, lowest), min(start + width, highest)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    of_left, of_right = find_level(left)[0], find_level(right)[0]
    while high - low > _PRECISION:
        if of_left <= of_right:
            high, right, of_right = right, left, of_left
            left = high - _GOLDEN * (high - low)
            of_left = find_level(left)[0]
        else:
            low, left, of_left = left, right, of_right
            right = low + _GOLDEN * (high - low)
            of_right = find_level(right)[0]
    log_critical = (low + high) / 2.0
    return CriticalBatchFit(math.exp(log_critical), math.exp(find_level(log_critical)[1]))
