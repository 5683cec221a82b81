"""Forecast of the log-loss at the end of a run from its first evaluations, by a power law."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from dlrm.record.files import OpenRecord
from dlrm.record.power_law import Interval, Law, LawFit, fit_law

MIN_EVALUATIONS = 6
"""Least number of evaluations: the law has four numbers, and what they leave over says how far it holds."""
MAX_POINTS = 40
"""Largest number of evaluations that are used, evenly spaced."""
_EXPONENTS = tuple(-0.05 * 1.22**number for number in range(24))
_OFFSETS = (0.0, *(0.1 * 2.0**number for number in range(11)))
"""Values of b, from -0.05 to -4.8, and of d as a multiple of the samples up to the first evaluation, from 0 to 102,
among which the best are looked for."""
_NUM_REFINEMENTS = 16
_STEPS = (-3, -2, -1, 0, 1, 2, 3)
"""Steps of b and d, in factors, around the best values so far; from one refinement to the next they are 0.7 as long."""


class LossForecast(OpenRecord, use_attribute_docstrings=True):
    """Log-loss at the end of a run if it goes on like this, with a 95 % interval; null with too few evaluations."""

    log_loss: float | None = None
    """Log-loss at the end of the run."""
    low: float | None = None
    """Lower bound of the interval."""
    high: float | None = None
    """Upper bound of the interval."""
    message: str
    """Forecast in words, with the reasons if it is poor."""


def forecast_log_loss(
    points: Sequence[tuple[float, float]], num_run_samples: float, poor_because: Sequence[str] = ()
) -> LossForecast:
    """Forecast the log-loss E after C = `num_run_samples`, by E = a (C + d)^b + c with a >= 0, b < 0 and d >= 0.

    The law (Hestness et al. 2017, arXiv 1712.00409) is fitted by least squares. The interval has the ends of all laws
    that agree with the evaluations (`LawFit`).

    points: samples so far and log-loss of each evaluation. poor_because: known reasons against the forecast.
    """
    if len(points) < MIN_EVALUATIONS:
        return LossForecast(message=f"no forecast yet: {len(points)} of {MIN_EVALUATIONS} evaluations are done")
    reasons = list(poor_because)
    if points[-1][1] > min(loss for _, loss in points):
        reasons.append("the log-loss has risen")
    every = -(-len(points) // MAX_POINTS)
    # From the last one back, which says most.
    chosen = tuple((samples / num_run_samples, loss) for samples, loss in points[::-1][::every][::-1])
    value, low, high = _fit(chosen)
    poor = f"; poor, since {' and '.join(reasons)}" if reasons else ""
    message = f"log-loss {value:.4f} ({low:.4f} to {high:.4f}) at the end if it goes on like this{poor}"
    return LossForecast(log_loss=value, low=low, high=high, message=message)


@lru_cache(maxsize=256)
def _fit(points: tuple[tuple[float, float], ...]) -> Interval:
    """Return the log-loss at 1, and the bounds of its interval; samples are shares of the run."""
    shares, losses = [share for share, _ in points], [loss for _, loss in points]
    laws = [fit_law(exponent, offset * shares[0], shares, losses) for exponent in _EXPONENTS for offset in _OFFSETS]
    for number in range(_NUM_REFINEMENTS):
        best = min(laws, key=lambda law: law.squares)
        near = _list_near(best, shares[0], 1.2 ** (0.7**number))
        laws += [fit_law(exponent, offset, shares, losses) for exponent, offset in near]
    return LawFit(laws, num_numbers=4).predict(1.0)


def _list_near(law: Law, first: float, ratio: float) -> Iterator[tuple[float, float]]:
    """List values of b and d near a law, within the range of the first values. first: share of the first evaluation."""
    for step in _STEPS:
        exponent = min(max(law.exponent * ratio**step, _EXPONENTS[-1]), _EXPONENTS[0])
        # So that an offset of 0 moves too.
        offsets = ((law.offset / first + _OFFSETS[1]) * ratio**other - _OFFSETS[1] for other in _STEPS)
        yield from ((exponent, first * min(max(offset, 0.0), _OFFSETS[-1])) for offset in offsets)
