"""Mean and mean square of the gradient of a batch, and what follows from them."""

from dataclasses import dataclass

import torch

from dlrm.native import fits_own_fp32

LEAST_VARIANCE = 2.0**-20
"""Least variance of an element, as a share of its mean square: below it fp32 differences are rounding."""


@dataclass(frozen=True)
class Moments:
    """Of every element of the dense parameters, over the samples of one global batch."""

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

    def variance(self) -> torch.Tensor:
        """[P] Of the gradients of single samples, unbiased but for the least one; 0 where no gradient was seen."""
        variance = torch.addcmul(self.mean_square, self.measured_mean, self.measured_mean, value=-1.0)
        least = self.mean_square * LEAST_VARIANCE
        return torch.maximum(variance, least, out=least).mul_(self.to_single_samples)

    def noise(self, sizes: list[int]) -> tuple[list[float], list[float]]:
        """tr(Sigma) and |G|^2 of each part of the parameters, unbiased, and so not always positive.

        sizes: elements of each part, in order. Sigma is the covariance of the gradients of single samples, G their true
        mean. With m measured samples, tr(Sigma) = m / (k - 1) sum(s - g^2) over them, and over all n of the batch
        |G|^2 = sum g^2 - tr(Sigma) / n (McCandlish et al. 2018, arXiv 1812.06162, appendix A, for any number of groups,
        of any size).
        """
        # In one transfer from the device.
        squares, squared_norms, measured_norms = self._sums(sizes).cpu()
        traces = self.to_single_samples * (squares - measured_norms)
        return traces.tolist(), (squared_norms - traces / self.num_samples).tolist()

    @property
    def to_single_samples(self) -> float:
        """m / (k - 1): what makes a mean of squared deviations a variance of single samples."""
        return self.num_measured / (self.num_compared - 1)

    def _sums(self, sizes: list[int]) -> torch.Tensor:
        """[3, parts] of s, g^2 and the measured mean's square, as float64."""
        if fits_own_fp32(self.mean):
            return torch.ops.dlrm_dense.moment_sums(self.mean_square, self.mean, self.measured_mean, sizes)
        squares = torch.stack([part.sum(dtype=torch.float64) for part in self.mean_square.split(sizes)])
        return torch.stack([squares, _squared_norms(self.mean, sizes), _squared_norms(self.measured_mean, sizes)])


def _squared_norms(flat: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    return torch.stack([torch.linalg.vector_norm(part, dtype=torch.float64).square() for part in flat.split(sizes)])
