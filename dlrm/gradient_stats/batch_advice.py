"""Advice on the batch from the noise scale of the gradient: time against data.

To reach the same loss, a run with batch B needs S steps and E = S B samples. With the noise scale B_noise,
S / Smin = 1 + B_noise / B and E / Emin = 1 + B / B_noise, and so (S / Smin - 1) (E / Emin - 1) = 1: McCandlish et al.
2018, arXiv 1812.06162, section 2.3 and equation 2.11. Smin is approached by ever larger batches, Emin by ever smaller
ones.

The largest useful batch is the power of two nearest B_noise, which the paper calls critical, Emin / Smin. There a run
needs twice the fewest steps and twice the fewest samples. Twice that batch saves a quarter of the steps for half as
many samples again; four times it, three eighths of them for two and a half times the samples.

A step of batch B does as much as 1 / (1 + B_noise / B) of the fewest steps. So the multiples of a run whose batch grew
are means over its sizes, weighted by what was done at each: E_i / (B_i + B_noise) for E_i samples at B_i.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dlrm.config import MAX_BATCH
from dlrm.gradient_stats.noise import NoiseInterval, NoiseState
from dlrm.record import BatchAdvice, BatchCost, EvaluationReport

MAX_SPREAD = 4.0
"""Largest factor from the lower to the upper bound of a noise scale that still allows advice."""

EXPONENTS = (-4, -2, 0, 2, 4)
"""Exponents of two: batches in the table, as multiples of the largest useful one. The table also has this run's own
batch, half of it and twice as much; of one that grew, its first and its last size."""


def find_largest_useful_batch(noise_scale: float) -> int:
    """Return the power of two nearest `noise_scale`, both in samples, within the range of a batch.

    noise_scale: above 0.
    """
    exponent = round(math.log2(min(noise_scale, MAX_BATCH)))
    return 2 ** max(exponent, 0)


def find_surely_useful_batch(lowest_noise_scale: float) -> int:
    """Return the largest power of two up to the lower bound of a noise scale, both in samples, within the range of a
    batch: what lies above it is not known to be useful."""
    return 2 ** int(math.log2(max(1.0, min(lowest_noise_scale, MAX_BATCH))))


def get_settled_noise(noise: NoiseState, last_evaluation: EvaluationReport | None) -> NoiseInterval | None:
    """Return the noise scale of a run where it is reliable.

    None if its interval is wider than a factor of `MAX_SPREAD`, and where the model is no better than the constant
    predictor.
    """
    interval = noise.interval
    if interval is None or interval.spread > MAX_SPREAD:
        return None
    return None if last_evaluation is not None and last_evaluation.is_no_better_than_constant else interval


def advise(samples: dict[int, int], noise: NoiseInterval | None) -> BatchAdvice:
    """Compute the advice for a run; empty if the noise scale is None.

    samples: number of samples that the run trained on by the size of the batch, the first size first.
    """
    first, last = next(iter(samples)), next(reversed(samples))
    first_batch = None if first == last else first
    if noise is None:
        return BatchAdvice(batch=last, first_batch=first_batch, noise_scale=None, largest_useful_batch=None, table=[])
    useful = find_largest_useful_batch(noise.value)
    around = {round(useful * 2.0**exponent) for exponent in EXPONENTS}
    around |= {last // 2, last, 2 * last} if first_batch is None else {first, last}
    batches = sorted(size for size in around if 1 <= size <= MAX_BATCH)
    own = compute_run_cost(samples, noise.value)
    return BatchAdvice(
        batch=last,
        first_batch=first_batch,
        noise_scale=noise.value,
        noise_scale_low=noise.low,
        noise_scale_high=noise.high,
        largest_useful_batch=useful,
        table=[_compute_cost(size, own, noise.value) for size in batches],
    )


@dataclass(frozen=True)
class RunCost:
    """Cost of a run as multiples of the fewest steps and samples to the same loss."""

    steps_of_fewest: float
    samples_of_fewest: float


def compute_run_cost(samples: Mapping[int, int], noise_scale: float) -> RunCost:
    """Compute the cost of a run, whose batch may have grown. samples: number of them by the size of the batch."""
    progress = {size: count / (size + noise_scale) for size, count in samples.items()}
    total = sum(progress.values())
    shares = {size: part / total for size, part in progress.items()}
    return RunCost(
        sum(share * _compute_steps_of_fewest(size, noise_scale) for size, share in shares.items()),
        sum(share * _compute_samples_of_fewest(size, noise_scale) for size, share in shares.items()),
    )


def _compute_cost(size: int, own: RunCost, noise_scale: float) -> BatchCost:
    """Compute the steps and samples of runs to the same loss with batches of `size`, relative to a run of cost `own`
    and to the fewest."""
    steps, samples = _compute_steps_of_fewest(size, noise_scale), _compute_samples_of_fewest(size, noise_scale)
    return BatchCost(
        batch=size,
        steps=steps / own.steps_of_fewest,
        samples=samples / own.samples_of_fewest,
        steps_of_fewest=steps,
        samples_of_fewest=samples,
    )


def _compute_steps_of_fewest(batch: int, noise_scale: float) -> float:
    """Compute S / Smin = 1 + B_noise / B."""
    return 1 + noise_scale / batch


def _compute_samples_of_fewest(batch: int, noise_scale: float) -> float:
    """Compute E / Emin = 1 + B / B_noise."""
    return 1 + batch / noise_scale
