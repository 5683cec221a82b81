"""Mean and mean square of the gradient of a batch, and the variance and noise that follow from them."""

from dataclasses import dataclass

import torch

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
class NoiseEstimate:
    """Estimates of the noise of one batch, all without bias."""

    traces: list[float]
    """tr(Sigma) of each part of the parameters."""
    squared_norms: list[float]
    """|G|^2 of each part."""
    drift: float
    """V over all parts, the variance of the mean gradient of the blocks that the batch draws on; 0 where it draws on
    all of them."""


@dataclass(frozen=True)
class Moments:
    """Moments of every element of the dense parameters, over the samples of one global batch."""

    mean: torch.Tensor
    """g [P], mean of the gradients of all samples."""
    mean_square: torch.Tensor
    """s [P], mean square of the compared gradients: those of samples, or of the means of groups."""
    measured_mean: torch.Tensor
    """g_m [P], mean of the gradients of the measured samples; `mean` itself where all are measured.

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
    """Mean gradient of the first half; None where the batch draws on all blocks of the data."""

    def compute_variance(self) -> torch.Tensor:
        """Compute the variance [P] of the gradients of single samples, m / (k - 1) (s - g_m^2); 0 where s is 0.

        Unbiased, except that s - g_m^2 is at least `MIN_VARIANCE_FRACTION` of s.
        """
        variance = torch.addcmul(self.mean_square, self.measured_mean, self.measured_mean, value=-1.0)
        least = self.mean_square * MIN_VARIANCE_FRACTION
        return torch.maximum(variance, least, out=least).mul_(self.per_sample_scale)

    def estimate_noise(self, sizes: list[int]) -> NoiseEstimate | None:
        """Estimate tr(Sigma) and |G|^2 of each part of the parameters, and the drift between blocks, without bias.

        sizes: elements of each part, in order. Sigma is the covariance of the gradients of single samples, G their true
        mean; the estimate of |G|^2 may be negative, that of tr(Sigma) only by rounding. Over the elements of a part:

            tr(Sigma) = m / (k - 1) (sum s - |g_m|^2)
            |G|^2 = |g|^2 - tr(Sigma) / n

        (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1, for any number of groups of any size). The second holds
        for a random batch. One that draws on a fraction p of the data's blocks has in g also what these blocks have in
        common. The product g_1 g_2 of the mean gradients of two parts, drawn from different blocks, has not: it is
        |G|^2 for a small p. For any p

            |G|^2 = p (|g|^2 - tr(Sigma) / n) + (1 - p) g_1 g_2

        since blocks are drawn without replacement: with V the variance of the block means over the number of blocks
        drawn, the first estimate is biased by +(1 - p) V, the second by -p V, and their weighted biases cancel; their
        difference estimates V. Returns None where one of the parts has no samples, which happens to tiny batches.
        """
        half = self.first_half
        if half is not None and not 0 < half.fraction < 1:
            return None
        # sum s, |g|^2 and |g_m|^2 of each part, in one transfer from the device.
        squares, squared_norms, measured_norms = self._compute_sums(sizes).cpu()
        traces = self.per_sample_scale * (squares - measured_norms)
        true_norms = squared_norms - traces / self.num_samples
        drift = torch.zeros_like(true_norms)
        if half is not None:
            drift = true_norms - self._multiply_halves(half, squared_norms, sizes)
            true_norms = true_norms - (1 - half.coverage) * drift
        return NoiseEstimate(traces.tolist(), true_norms.tolist(), drift.sum().item())

    def _multiply_halves(self, half: HalfMean, squared_norms: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        """Compute g_1 g_2 [parts], the product of the means of the first half and of the rest.

        With d = g_1 - g and a the first half's fraction of the samples, g = a g_1 + (1 - a) g_2, and so g_1 = g + d and
        g_2 = g - a / (1 - a) d:

            g_1 g_2 = |g|^2 + (1 - a / (1 - a)) g d - a / (1 - a) |d|^2

        The last two terms are small, so that little is lost to rounding; and g_2 needs no memory.
        """
        rest = half.fraction / (1 - half.fraction)
        difference = half.mean - self.mean
        along = torch.stack(
            [
                torch.dot(part.double(), mean.double())
                for part, mean in zip(difference.split(sizes), self.mean.split(sizes), strict=True)
            ]
        ).cpu()
        return squared_norms + (1 - rest) * along - rest * _compute_squared_norms(difference, sizes).cpu()

    @property
    def per_sample_scale(self) -> float:
        """m / (k - 1), the factor from s - g_m^2 to the variance of single samples.

        k / (k - 1) removes the bias of the deviation from a mean; m / k samples are averaged in each compared gradient.
        """
        return self.num_measured / (self.num_compared - 1)

    def _compute_sums(self, sizes: list[int]) -> torch.Tensor:
        """Sum s, g^2 and g_m^2 over each part: [3, parts] float64."""
        if fits_native_fp32(self.mean):
            return torch.ops.dlrm_dense.sum_moments(self.mean_square, self.mean, self.measured_mean, sizes)
        squares = torch.stack([part.sum(dtype=torch.float64) for part in self.mean_square.split(sizes)])
        return torch.stack(
            [squares, _compute_squared_norms(self.mean, sizes), _compute_squared_norms(self.measured_mean, sizes)]
        )


def _compute_squared_norms(flat: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return torch.stack([torch.linalg.vector_norm(part, dtype=torch.float64).square() for part in flat.split(sizes)])
