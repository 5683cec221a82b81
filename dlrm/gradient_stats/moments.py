"""Mean and mean square of the gradient of a batch, and what follows from them."""

from dataclasses import dataclass

import torch

from dlrm.native import fits_own_fp32

MIN_VARIANCE_SHARE = 2.0**-20
"""Least variance of an element, as a share of its mean square: smaller differences are fp32 rounding."""


@dataclass(frozen=True)
class HalfMean:
    """The mean gradient of a part of the batch, whose blocks of the data are drawn apart from those of the rest."""

    mean: torch.Tensor
    """[P]"""
    fraction: float
    """a, share of the batch's samples that are in the part."""
    coverage: float
    """p, share of the data's blocks that the whole batch draws on."""


@dataclass(frozen=True)
class Moments:
    """Moments of every element of the dense parameters, over the samples of one global batch."""

    mean: torch.Tensor
    """g [P], of the gradients of all samples."""
    mean_square: torch.Tensor
    """s [P], of the gradients of what is compared: samples, or the means of groups of them."""
    measured_mean: torch.Tensor
    """[P], of the gradients of the samples that are measured; `mean` itself where all are.

    A variance from the mean of one set of samples and the mean square of another would be below 0 wherever the second
    set missed the few samples that matter, and such elements would rule the mean of their tensor's ratios.
    """
    num_samples: int
    """n, of the batch."""
    num_measured: int
    """Samples that `mean_square` and `measured_mean` are of."""
    num_compared: int
    """k, at least 2: those samples, or groups with a sample in them."""
    first_half: HalfMean | None = None
    """Mean gradient of the first half; None where the batch draws on all blocks of the data."""

    def variance(self) -> torch.Tensor:
        """Compute the variance [P] of the gradients of single samples, 0 where no gradient was seen.

        Unbiased, except that it is at least `MIN_VARIANCE_SHARE` of the mean square.
        """
        variance = torch.addcmul(self.mean_square, self.measured_mean, self.measured_mean, value=-1.0)
        least = self.mean_square * MIN_VARIANCE_SHARE
        return torch.maximum(variance, least, out=least).mul_(self.per_sample_scale)

    def noise(self, sizes: list[int]) -> tuple[list[float], list[float]] | None:
        """Estimate tr(Sigma) and |G|^2 of each part of the parameters, both without bias.

        sizes: elements of each part, in order. Sigma is the covariance of the gradients of single samples, G their true
        mean; the estimate of |G|^2 may be negative, that of tr(Sigma) only by rounding. With m measured samples,
        tr(Sigma) = m / (k - 1) sum(s - g^2) over them, and over all n of a random batch |G|^2 = sum g^2 - tr(Sigma) / n
        (McCandlish et al. 2018, arXiv 1812.06162, appendix A, for any number of groups, of any size).

        A batch that draws on a share p of the data's blocks alone has in g what these have in common, too. The product
        of the gradients of two parts, whose blocks are drawn apart, has not: it is |G|^2 for a small p. For any p,
        |G|^2 = p (sum g^2 - tr(Sigma) / n) + (1 - p) g_1 g_2: blocks are drawn without replacement, so that the first
        estimate is too large by (1 - p) and the second too small by p of the same amount, the variance of the blocks'
        means over the number of blocks drawn. None where one of the parts is empty, which happens to tiny batches.
        """
        half = self.first_half
        if half is not None and not 0 < half.fraction < 1:
            return None
        # In one transfer from the device.
        squares, squared_norms, measured_norms = self._sums(sizes).cpu()
        traces = self.per_sample_scale * (squares - measured_norms)
        true_norms = squared_norms - traces / self.num_samples
        if half is not None:
            true_norms = half.coverage * true_norms + (1 - half.coverage) * self._products(half, squared_norms, sizes)
        return traces.tolist(), true_norms.tolist()

    def _products(self, half: HalfMean, squared_norms: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        """Compute g_1 g_2 [parts], the product of the means of the first half and of the rest.

        With d = g_1 - g and a the first half's share of the samples, g_1 = g + d and g_2 = g - a / (1 - a) d, so that
        g_1 g_2 = |g|^2 + (1 - a / (1 - a)) g d - a / (1 - a) |d|^2, whose last two terms are small.
        """
        rest = half.fraction / (1 - half.fraction)
        difference = half.mean - self.mean
        along = torch.stack(
            [
                torch.dot(part.double(), mean.double())
                for part, mean in zip(difference.split(sizes), self.mean.split(sizes), strict=True)
            ]
        ).cpu()
        return squared_norms + (1 - rest) * along - rest * _squared_norms(difference, sizes).cpu()

    @property
    def per_sample_scale(self) -> float:
        """m / (k - 1), the factor from a mean of squared deviations to the variance of single samples."""
        return self.num_measured / (self.num_compared - 1)

    def _sums(self, sizes: list[int]) -> torch.Tensor:
        """Sum s, g^2 and the measured mean's square over each part: [3, parts] float64."""
        if fits_own_fp32(self.mean):
            return torch.ops.dlrm_dense.moment_sums(self.mean_square, self.mean, self.measured_mean, sizes)
        squares = torch.stack([part.sum(dtype=torch.float64) for part in self.mean_square.split(sizes)])
        return torch.stack([squares, _squared_norms(self.mean, sizes), _squared_norms(self.measured_mean, sizes)])


def _squared_norms(flat: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return torch.stack([torch.linalg.vector_norm(part, dtype=torch.float64).square() for part in flat.split(sizes)])
