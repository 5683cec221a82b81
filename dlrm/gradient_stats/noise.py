"""Noise scale of the dense gradient, averaged over a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

RECENCY = 2
"""Exponent of the weight of a measurement: of batches of one size the i-th has weight i (i + 1), about i^2, so that
half of all weight is on the last fifth of the samples. A single step is too noisy, and the noise scale grows while a
model learns."""
MIN_MEASUREMENTS = 20
"""Number of measurements below which there is no noise scale: fewer do not show their own scatter."""
MIN_EFFECTIVE = 6.0
"""Effective number of measurements below which there is none: of a batch that grows, the last few may have nearly all
weight."""
NORMAL_QUANTILE = 1.96
"""Standard errors on each side of an interval that holds a normal variable's mean in 95 of 100 cases."""


@dataclass(frozen=True)
class StepNoise:
    """Unbiased estimates of one step, by layer of the dense part."""

    traces: Mapping[str, float]
    """tr(Sigma), Sigma the covariance of the gradients of single samples."""
    squared_norms: Mapping[str, float]
    """|G|^2, G the true mean of the gradient; its estimate may be negative, tr(Sigma) only by rounding."""
    drift: float = 0.0
    """V, variance of the mean gradient of the blocks that the batch draws on, over all layers; its estimate may be
    negative. 0 if the rows are in uniformly random order."""
    window: int | None = None
    """Number of the shuffle window that the batch begins in; None if the rows are in uniformly random order."""


@dataclass(frozen=True)
class NoiseInterval:
    """Noise scale with its 95 % confidence bounds, in samples."""

    low: float
    value: float
    high: float
    """Upper bound: the true value is between `low` and `high` in about 95 of 100 runs. Infinite where the noise
    hides the gradient."""

    @property
    def spread(self) -> float:
        """Factor from `low` to `high`; infinite where `low` is 0 or `high` infinite."""
        return self.high / self.low if self.low > 0 else math.inf


class Scatter(BaseModel):
    """Scatter of the measurements of all layers together: weighted means of the squares of tr(Sigma) and |G|^2."""

    model_config = ConfigDict(extra="forbid")

    weight_squares: float = 0.0
    """Sum of the squared weights of all measurements, whose sum is 1."""
    trace_squares: float = 0.0
    norm_squares: float = 0.0
    products: float = 0.0
    """Weighted mean of the product of tr(Sigma) and |G|^2."""

    def add(self, trace: float, norm: float, weight: float) -> None:
        """Add one measurement. weight: its fraction of the mean; all earlier ones together have 1 - weight."""
        # All earlier weights shrink by 1 - w: sum w_i^2 becomes (1 - w)^2 sum w_i^2 + w^2.
        self.weight_squares = (1 - weight) ** 2 * self.weight_squares + weight**2
        self.trace_squares += weight * (trace**2 - self.trace_squares)
        self.norm_squares += weight * (norm**2 - self.norm_squares)
        self.products += weight * (trace * norm - self.products)

    @property
    def num_effective(self) -> float:
        """Effective number of measurements, 1 / sum w_i^2 (Kish 1965)."""
        return 1 / self.weight_squares if self.weight_squares else 0.0

    def compute_norm_variance(self, norm: float) -> float:
        """Compute the variance of `norm`, the mean of |G|^2, as far as steps err independently of each other."""
        return max(self.norm_squares - norm**2, 0.0) / (self.num_effective - 1)

    def bound_ratio(self, trace: float, norm: float, drift_variance: float) -> NoiseInterval:
        """Bound the ratio of two means, by Fieller's theorem (Fieller 1954, J. R. Stat. Soc. B 16).

        trace, norm: weighted means, T and N. drift_variance: variance of N beyond the scatter of independent steps. A
        ratio t is within the bounds where T - t N is at most q standard errors from 0, q Student's quantile: (T - t
        N)^2 <= q^2 (V_T - 2 t V_TN + t^2 V_N), with the variances V of the means.
        """
        # The variance of a weighted mean is the scatter about it over the effective number of measurements less one.
        # The variances and the covariance below are times q^2.
        num_free = self.num_effective - 1
        squared_quantile = approximate_student_quantile(num_free) ** 2
        trace_variance = squared_quantile * max(self.trace_squares - trace**2, 0.0) / num_free
        norm_variance = squared_quantile * (self.compute_norm_variance(norm) + drift_variance)
        covariance = squared_quantile * (self.products - trace * norm) / num_free
        # The condition as a quadratic in t: a t^2 - 2 b t + c <= 0, with roots (b -+ sqrt(b^2 - a c)) / a.
        a, b, c = norm**2 - norm_variance, trace * norm - covariance, trace**2 - trace_variance
        root = math.sqrt(max(b**2 - a * c, 0.0))
        value = trace / norm if norm > 0 else math.inf
        # The lower root as c / (b + root), which loses no digits and holds for a = 0. Where a < 0 the parabola opens
        # downwards: this is its positive root, and all ratios above it are within the bounds.
        low = c / (b + root) if c > 0 and b + root > 0 else 0.0
        high = (b + root) / a if norm > 0 and a > 0 else math.inf
        return NoiseInterval(low, value, high)


def approximate_student_quantile(num_free: float) -> float:
    """Approximate the 0.975 quantile of Student's distribution with `num_free` degrees of freedom.

    t = z + (z^3 + z) / (4 v) + (5 z^5 + 16 z^3 + 3 z) / (96 v^2) with v = num_free and z the normal quantile: the
    Cornish-Fisher expansion (Abramowitz & Stegun 1964, 26.7.5), within 1 % from v = 5 on.
    """
    z = NORMAL_QUANTILE
    return z + (z**3 + z) / (4 * num_free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * num_free**2)


class WindowDrift(BaseModel):
    """Variance of the gradient between shuffle windows, and how the weight of all measurements is spread over them.

    Measurements of |G|^2 in one window err together, by what its blocks have in common. With the means of the halves
    g_1 = G + b_1 and g_2 = G + b_2, whose deviations b have a variance of 2 V each, the product has the variance

        G' S_1 G + G' S_2 G + tr(S_1 S_2) <= 4 |G|^2 V + 4 V^2

    since the covariances S have a trace of 2 V, and no eigenvalue above it. Both are equal if all drift is along G.
    Windows err independently, or, within an epoch, against each other. So the variance of the mean over windows is at
    most this bound times the sum of their squared weights.
    """

    model_config = ConfigDict(extra="forbid")

    variance: float = 0.0
    """V, weighted mean of the estimates of all measurements, which may be negative."""
    window: int | None = None
    """Number of the window of the last measurement; None if the rows are in uniformly random order."""
    weight: float = 0.0
    """Weight of the measurements in that window; the weights of all measurements add up to 1."""
    squares: float = 0.0
    """Sum of the squared weights of the windows before it."""

    def add(self, variance: float, window: int | None, weight: float) -> None:
        """Add one measurement. weight: its fraction of the mean; all earlier ones together have 1 - weight."""
        self.variance += weight * (variance - self.variance)
        self.weight *= 1 - weight
        self.squares *= (1 - weight) ** 2
        if window != self.window:
            self.squares += self.weight**2
            self.window, self.weight = window, 0.0
        self.weight += weight

    def bound_variance(self, squared_norm: float) -> float:
        """Bound the variance that drift adds to `squared_norm`, the mean of all measurements of |G|^2."""
        variance = max(self.variance, 0.0)
        return (self.squares + self.weight**2) * 4 * variance * (max(squared_norm, 0.0) + variance)


class NoiseState(BaseModel):
    """tr(Sigma) and |G|^2 by layer, averaged separately: the ratio of means is far less biased than a mean of ratios.

    McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1. The means are weighted by `RECENCY`, as in polynomial-decay
    averaging (Shamir & Zhang 2013, arXiv 1212.1824, section 4), for which the length of the run need not be known.
    """

    model_config = ConfigDict(extra="forbid")

    num_measured: int = 0
    """Number of measurements, one step each."""
    num_samples: int = 0
    """Number of samples that the measurements stand for."""
    traces: dict[str, float] = {}
    squared_norms: dict[str, float] = {}
    spread: Scatter = Field(default_factory=Scatter)
    drift: WindowDrift = Field(default_factory=WindowDrift)

    def add(self, step: StepNoise, num_samples: int) -> None:
        """Add the measurement of a full batch. num_samples: samples from one measurement to the next, so that all
        samples of a run count alike, at whatever batch."""
        self.num_measured += 1
        self.num_samples += num_samples
        # mean_i = (1 - w) mean_(i-1) + w x_i with w = (1 + r) n / (N + r n), n the samples of the measurement, N those
        # of all so far. For n that are equal and r = RECENCY = 2, w = 3 / (i + 2), and x_i has weight i (i + 1).
        weight = (1 + RECENCY) * num_samples / (self.num_samples + RECENCY * num_samples)
        for means, values in ((self.traces, step.traces), (self.squared_norms, step.squared_norms)):
            for layer, value in values.items():
                means[layer] = (1 - weight) * means.get(layer, 0.0) + weight * value
        self.spread.add(sum(step.traces.values()), sum(step.squared_norms.values()), weight)
        self.drift.add(step.drift, step.window, weight)

    @property
    def noise_scale(self) -> float | None:
        """tr(Sigma) / |G|^2, in samples; None while it has no upper bound, as with too few measurements."""
        interval = self.interval
        return None if interval is None or math.isinf(interval.high) else interval.value

    @property
    def interval(self) -> NoiseInterval | None:
        """The noise scale with its bounds; None if there are too few measurements."""
        if self.num_measured < MIN_MEASUREMENTS or self.spread.num_effective < MIN_EFFECTIVE:
            return None
        trace, norm = sum(self.traces.values()), sum(self.squared_norms.values())
        return self.spread.bound_ratio(trace, norm, self.drift.bound_variance(norm))

    @property
    def is_drift_larger(self) -> bool:
        """Whether more of the interval's width comes from drift in the data than from too few measurements."""
        norm = sum(self.squared_norms.values())
        return self.drift.bound_variance(norm) > self.spread.compute_norm_variance(norm)

    @property
    def gsnr(self) -> dict[str, float | None] | None:
        """|G|^2 / tr(Sigma) of each layer, for one sample; None before the first measurement."""
        if not self.traces:
            return None
        return {layer: _divide(self.squared_norms[layer], trace) for layer, trace in self.traces.items()}


def _divide(above: float, below: float) -> float | None:
    return above / below if above > 0 and below > 0 else None
