"""Noise scales that runs have reported, and whether a fitted critical batch agrees with them."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cli.experiments.report.critical_batch import CriticalBatchFit
from cli.experiments.sweep.results import TrialResult

AGREEMENT_FACTOR = 2.0
"""Factor up to which a fitted critical batch and a noise scale agree: both are accurate to a factor, not to a
percent."""
Agreement = Literal["agree", "disagree", "open"]
"""Verdict on two numbers: `open` where their bounds leave both possible, or where one has no bounds."""


@dataclass(frozen=True)
class NoiseScale:
    """Bounds of the median noise scale of several runs, in samples: both the same where they tell it."""

    low: float
    high: float
    """Upper bound, which may be infinite."""

    @property
    def value(self) -> float | None:
        """Median itself; None if only its bounds are known."""
        return self.low if self.low == self.high else None


def find_median_noise(results: Iterable[TrialResult]) -> NoiseScale | None:
    """Find the median of the noise scales at the end of runs; None if they tell nothing of it.

    A run in which noise hides the gradient has a lower bound alone, `noise_scale_low`. Such a run is no missing value:
    they are those with large noise scales, without which the median would be too low. So the median is at least that
    with these runs at their lower bounds, and at most that with them above all others.
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

    A critical batch without an interval, of one seed at a batch, leaves that open.
    """
    if fit.low is None or fit.high is None:
        return "open"
    lowest, highest = fit.low / noise.high, fit.high / noise.low
    if lowest >= 1.0 / AGREEMENT_FACTOR and highest <= AGREEMENT_FACTOR:
        return "agree"
    return "disagree" if highest < 1.0 / AGREEMENT_FACTOR or lowest > AGREEMENT_FACTOR else "open"
