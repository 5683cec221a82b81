"""Noise scale of the dense gradient, averaged over a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    # Needs torch, and advice is given where it is not.
    from dlrm.gradient_stats.moments import Moments

RECENCY = 2
"""Exponent of the weight of a measurement: the i-th has weight i (i + 1), about i^2, so that half of all weight is on
the last fifth. A single step says little, and the noise scale grows while a model learns."""
MIN_MEASUREMENTS = 20
"""Number of measurements below which nothing is concluded: fewer do not show their own scatter."""
NORMAL_QUANTILE = 1.96
"""Standard errors on each side of an interval that holds a normal variable's mean in 95 of 100 cases."""


@dataclass(frozen=True)
class StepNoise:
    """Unbiased estimates of one step, by layer of the dense part."""

    traces: Mapping[str, float]
    """tr(Sigma), Sigma the covariance of the gradients of single samples."""
    squared_norms: Mapping[str, float]
    """|G|^2, G the true mean of the gradient; its estimate may be negative, that of tr(Sigma) may not."""


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
        """Factor from `low` to `high`; infinite where one of them is no bound."""
        return self.high / self.low if self.low > 0 else math.inf


class Spread(BaseModel):
    """Scatter of the measurements of all layers together: weighted means of squares of tr(Sigma) and |G|^2."""

    model_config = ConfigDict(extra="forbid")

    weight_squares: float = 0.0
    """Sum of the squared weights of all measurements, whose sum is 1."""
    trace_squares: float = 0.0
    norm_squares: float = 0.0
    products: float = 0.0
    """Weighted mean of the product of tr(Sigma) and |G|^2."""

    def add(self, trace: float, norm: float, weight: float) -> None:
        """Add one measurement. weight: its share of the mean; all earlier ones together have 1 - weight."""
        self.weight_squares = (1 - weight) ** 2 * self.weight_squares + weight**2
        self.trace_squares += weight * (trace**2 - self.trace_squares)
        self.norm_squares += weight * (norm**2 - self.norm_squares)
        self.products += weight * (trace * norm - self.products)

    def ratio(self, trace: float, norm: float) -> NoiseInterval:
        """Bound the ratio of two means, by Fieller's theorem (Fieller 1954, J. R. Stat. Soc. B 16).

        trace, norm: the weighted means. The bounds are the ratios t for which trace - t norm is as far from 0 as
        Student's quantile of its standard errors. Measurements of different steps count as independent; what a drift
        adds to their scatter makes the interval wider.
        """
        # Variances of weighted means: scatter over the effective number of measurements less one.
        num_free = 1 / self.weight_squares - 1
        per_scatter = student_quantile(num_free) ** 2 / num_free
        of_trace = per_scatter * max(self.trace_squares - trace**2, 0.0)
        of_norm = per_scatter * max(self.norm_squares - norm**2, 0.0)
        of_both = per_scatter * (self.products - trace * norm)
        # The ratios that are not excluded: a t^2 - 2 b t + c <= 0.
        a, b, c = norm**2 - of_norm, trace * norm - of_both, trace**2 - of_trace
        root = math.sqrt(max(b**2 - a * c, 0.0))
        value = trace / norm if norm > 0 else math.inf
        # The lower root, or the positive one where the parabola opens downwards: then all above it is allowed.
        low = c / (b + root) if c > 0 and b + root > 0 else 0.0
        high = (b + root) / a if norm > 0 and a > 0 else math.inf
        return NoiseInterval(low, value, high)


def student_quantile(num_free: float) -> float:
    """Approximate the 0.975 quantile of Student's distribution with `num_free` degrees of freedom.

    Within 1 % from 5 on: the Cornish-Fisher expansion about the normal one (Abramowitz & Stegun 1964, 26.7.5).
    """
    z = NORMAL_QUANTILE
    return z + (z**3 + z) / (4 * num_free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * num_free**2)


class NoiseState(BaseModel):
    """tr(Sigma) and |G|^2 by layer, each averaged apart: their ratio is far less biased than a mean of ratios.

    McCandlish et al. 2018 (arXiv 1812.06162), appendix A.1. The means are weighted by `RECENCY`, as in polynomial-decay
    averaging (Shamir & Zhang 2013, arXiv 1212.1824), which needs no length of the run.
    """

    model_config = ConfigDict(extra="forbid")

    num_measured: int = 0
    """Number of measurements, one step each."""
    traces: dict[str, float] = {}
    squared_norms: dict[str, float] = {}
    spread: Spread | None = None
    """Scatter of the measurements; None before the first one, and in checkpoints that did not have it yet."""

    def add(self, step: StepNoise) -> None:
        """Add the measurement of a full batch."""
        if self.spread is None:
            # What an earlier version averaged does not say how it scatters.
            self.num_measured, self.traces, self.squared_norms, self.spread = 0, {}, {}, Spread()
        self.num_measured += 1
        weight = (1 + RECENCY) / (self.num_measured + RECENCY)
        for known, said in ((self.traces, step.traces), (self.squared_norms, step.squared_norms)):
            for layer, value in said.items():
                known[layer] = (1 - weight) * known.get(layer, 0.0) + weight * value
        self.spread.add(sum(step.traces.values()), sum(step.squared_norms.values()), weight)

    @property
    def noise_scale(self) -> float | None:
        """tr(Sigma) / |G|^2, in samples; None while measurements are too few to bound it, from above as well."""
        interval = self.interval
        return None if interval is None or math.isinf(interval.high) else interval.value

    @property
    def interval(self) -> NoiseInterval | None:
        """The noise scale between its bounds; None where it was measured too seldom to tell them."""
        if self.spread is None or self.num_measured < MIN_MEASUREMENTS:
            return None
        return self.spread.ratio(sum(self.traces.values()), sum(self.squared_norms.values()))

    @property
    def gsnr(self) -> dict[str, float | None] | None:
        """|G|^2 / tr(Sigma) of each layer, of one sample; None before anything is known."""
        if not self.traces:
            return None
        return {layer: _ratio(self.squared_norms[layer], trace) for layer, trace in self.traces.items()}


class LayerNoise:
    """Estimates the noise of each layer; all parameters of one module are one layer."""

    def __init__(self, named_sizes: Sequence[tuple[str, int]]) -> None:
        """Group parameters by layer. named_sizes: name and number of elements of each parameter, in the order of the
        moments; those of a layer follow each other.
        """
        self._sizes: dict[str, int] = {}
        for name, size in named_sizes:
            layer = name.rpartition(".")[0]
            self._sizes[layer] = self._sizes.get(layer, 0) + size

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each layer, in their order."""
        return list(self._sizes.values())

    def __call__(self, moments: "Moments") -> StepNoise | None:
        """Estimate the noise of each layer; None where the batch does not tell it."""
        noise = moments.noise(self.sizes)
        if noise is None:
            return None
        traces, squared_norms = noise
        return StepNoise(
            dict(zip(self._sizes, traces, strict=True)), dict(zip(self._sizes, squared_norms, strict=True))
        )


def _ratio(above: float, below: float) -> float | None:
    return above / below if above > 0 and below > 0 else None
