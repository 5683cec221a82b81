"""Mean and mean square of the gradient of a batch, and what follows from them."""

from dataclasses import dataclass

import torch

LEAST_VARIANCE = 2.0**-20
"""Least variance of an element, as a share of its mean square: below it fp32 differences are rounding."""


@dataclass(frozen=True)
class Moments:
    """Of every element of the dense parameters, over the samples of one global batch."""

    mean: torch.Tensor
    """g [P], of the gradients of all samples."""
    mean_square: torch.Tensor
    """s [P], of the gradients of what is compared: samples, or groups of them."""
    num_samples: int
    """n, of the batch."""
    num_compared: int
    """k, at least 2: n for samples, else groups with a sample in them."""

    def ratio(self) -> torch.Tensor:
        """[P] Squared signal-to-noise ratio g^2 / (s - g^2); 0 where no gradient was seen (arXiv 2309.13681, eq. 3)."""
        squared_mean = self.mean.square()
        least = self.mean_square * LEAST_VARIANCE
        variance = torch.maximum(self.mean_square - squared_mean, least)
        return torch.where(self.mean_square > 0, squared_mean / variance, 0.0)

    def noise(self, sizes: list[int]) -> tuple[list[float], list[float]]:
        """tr(Sigma) and |G|^2 of each part of the parameters, unbiased, and so not always positive.

        sizes: elements of each part, in order. Sigma is the covariance of the gradients of single samples, G their
        true mean: tr(Sigma) = n / (k - 1) sum(s - g^2), |G|^2 = sum g^2 - tr(Sigma) / n (McCandlish et al. 2018, arXiv
        1812.06162, appendix A, for groups of any size).
        """
        square_sums = [part.sum(dtype=torch.float64) for part in self.mean_square.split(sizes)]
        means = [part.norm(dtype=torch.float64).square() for part in self.mean.split(sizes)]
        of_parts = torch.stack([torch.stack(square_sums), torch.stack(means)]).cpu()  # [2, parts]
        traces = self.num_samples / (self.num_compared - 1) * (of_parts[0] - of_parts[1])
        return traces.tolist(), (of_parts[1] - traces / self.num_samples).tolist()
