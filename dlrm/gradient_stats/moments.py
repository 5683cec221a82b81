"""Mean and mean square of the gradient of a batch, and the variance and noise that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dlrm.gradient_stats.noise import StepNoise
from dlrm.gradient_stats.parts import sum_parts, sum_squares_of_parts
from dlrm.native import fits_native_fp32

MIN_VARIANCE_FRACTION = 2.0**-20
"""Least variance of an element, as a fraction of its mean square: smaller differences are rounding of fp32."""


@dataclass(frozen=True)
class HalfMean:
    """The mean gradient g_1 of a part of the batch, which is drawn from other blocks of the data than the rest."""

    mean: torch.Tensor
    """[P]"""
    fraction: float
    """a, fraction of the batch's samples that are in the part."""
    coverage: float
    """p, fraction of the data's blocks that the whole batch draws on."""
    window: int
    """Number of the shuffle window that the batch begins in."""


@dataclass(frozen=True)
class Moments:
    """Moments of every element of the dense parameters, over the samples of one global batch."""

    mean: torch.Tensor
    """g [P], mean of the gradients of all samples."""
    mean_square: torch.Tensor
    """s [P], mean square of the compared gradients: of samples, or of the means of groups."""
    measured_mean: torch.Tensor
    """g_m [P], mean of the gradients of the measured samples; `mean` itself if all are measured.

    A variance from the mean of one set of samples and the mean square of another would be below 0 wherever the second
    set missed the few samples with a gradient, and such elements would dominate the mean of their layer's ratios.
    """
    num_samples: int
    """n, valid samples of the batch."""
    num_measured: int
    """m, samples that `mean_square` and `measured_mean` are taken over."""
    num_compared: int
    """k, at least 2: number of compared gradients, of samples or of non-empty groups."""
    first_half: HalfMean | None = None
    """Mean gradient of the first half; None if the batch draws on all blocks of the data."""

    def compute_variance(self) -> torch.Tensor:
        """Compute the variance [P] of the gradients of single samples, m / (k - 1) (s - g_m^2); 0 if s is 0.

        Unbiased, except that s - g_m^2 is at least `MIN_VARIANCE_FRACTION` of s.
        """
        variance = torch.addcmul(self.mean_square, self.measured_mean, self.measured_mean, value=-1.0)
        least = self.mean_square * MIN_VARIANCE_FRACTION
        return torch.maximum(variance, least, out=least).mul_(self.per_sample_scale)

    def compute_sums(self, sizes: list[int]) -> torch.Tensor:
        """Sum s, g^2 and g_m^2 over each part of the parameters: [3, parts] float64, on the device.

        If the batch has halves, the sums of g_1^2 and of (g_1 - g)^2 follow: [5, parts]. sizes: elements of each part,
        in order.
        """
        half = self.first_half
        of_half = [] if half is None else [half.mean, half.mean - self.mean]
        if not fits_native_fp32(self.mean):
            squares = sum_squares_of_parts([self.mean, self.measured_mean, *of_half], sizes)
            return torch.cat([sum_parts([self.mean_square], sizes), squares])
        sums = torch.ops.dlrm_dense.sum_moments(self.mean_square, self.mean, self.measured_mean, sizes)
        return torch.cat([sums, sum_squares_of_parts(of_half, sizes)]) if of_half else sums

    def estimate_noise(self, sums: torch.Tensor, layers: Sequence[str]) -> StepNoise | None:
        """Estimate tr(Sigma) and |G|^2 of each layer of the parameters, and the drift between blocks, without bias.

        sums: from `compute_sums`, on the host. layers: names of its parts. The tensors of these moments are not read:
        they may have changed since. Sigma is the covariance of the gradients of single samples, G their true mean; the
        estimate of |G|^2 may be negative, tr(Sigma) only by rounding. Over the elements of a layer:

            tr(Sigma) = m / (k - 1) (sum s - |g_m|^2)
            |G|^2 = |g|^2 - tr(Sigma) / n

        (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1, for any number of groups of any size). The second holds
        for a random batch. One that draws on a fraction p of the data's blocks has in g also what these blocks have in
        common. The product g_1 g_2 of the mean gradients of two parts, drawn from different blocks, has not: it is
        |G|^2 for a small p. For any p

            |G|^2 = p (|g|^2 - tr(Sigma) / n) + (1 - p) g_1 g_2

        since blocks are drawn without replacement: with V the variance of the block means over the number of blocks
        drawn, the first estimate is biased by +(1 - p) V, the second by -p V, and their weighted biases cancel; their
        difference estimates V. Returns None if one of the parts has no samples, which happens to tiny batches.
        """
        half = self.first_half
        if half is not None and not 0 < half.fraction < 1:
            return None
        squares, squared_norms, measured_norms, *of_half = sums
        traces = self.per_sample_scale * (squares - measured_norms)
        true_norms = squared_norms - traces / self.num_samples
        drift = torch.zeros_like(true_norms)
        if half is not None:
            first_norms, squared_differences = of_half
            drift = true_norms - _multiply_halves(half.fraction, squared_norms, first_norms, squared_differences)
            true_norms = true_norms - (1 - half.coverage) * drift
        return StepNoise(
            dict(zip(layers, traces.tolist(), strict=True)),
            dict(zip(layers, true_norms.tolist(), strict=True)),
            drift=drift.sum().item(),
            window=None if half is None else half.window,
        )

    @property
    def per_sample_scale(self) -> float:
        """m / (k - 1), the factor from s - g_m^2 to the variance of single samples.

        k / (k - 1) removes the bias of the deviation from a mean; m / k samples are averaged in each compared gradient.
        """
        return self.num_measured / (self.num_compared - 1)


def _multiply_halves(
    fraction: float, squared_norms: torch.Tensor, first_norms: torch.Tensor, squared_differences: torch.Tensor
) -> torch.Tensor:
    """Compute g_1 g_2 [parts], the product of the means of the first half and of the rest.

    fraction: a, the first half's fraction of the samples. Others: |g|^2, |g_1|^2 and |d|^2 [parts], with d = g_1 - g.
    Since g = a g_1 + (1 - a) g_2, g_1 = g + d and g_2 = g - a / (1 - a) d:

        g_1 g_2 = |g|^2 + (1 - a / (1 - a)) g d - a / (1 - a) |d|^2,   g d = (|g_1|^2 - |g|^2 - |d|^2) / 2

    The last two terms of the first are small, so that little is lost to rounding; and g_2 needs no memory.
    """
    rest = fraction / (1 - fraction)
    along = (first_norms - squared_norms - squared_differences) / 2
    return squared_norms + (1 - rest) * along - rest * squared_differences
