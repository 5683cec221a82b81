"""Noise of the layers of the dense part in one step."""

from collections.abc import Sequence

import torch

from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.noise import StepNoise


class LayerNoise:
    """Estimator of the noise of each layer; all parameters of one module are one layer."""

    def __init__(self, named_sizes: Sequence[tuple[str, int]]) -> None:
        """Group parameters by layer. named_sizes: name and number of elements of each parameter, in the order of the
        moments; a layer's parameters follow each other.
        """
        self._sizes: dict[str, int] = {}
        for name, size in named_sizes:
            layer = name.rpartition(".")[0]
            self._sizes[layer] = self._sizes.get(layer, 0) + size

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each layer, in their order."""
        return list(self._sizes.values())

    def compute_sums(self, moments: Moments) -> torch.Tensor:
        """Compute the sums over each layer that its noise is estimated from: see `Moments.compute_sums`."""
        return moments.compute_sums(self.sizes)

    def estimate(self, moments: Moments, sums: torch.Tensor) -> StepNoise | None:
        """Estimate the noise of each layer; None if `Moments.estimate_noise` has no estimate.

        sums: from `compute_sums`, on the host. No tensor of `moments` is read.
        """
        return moments.estimate_noise(sums, list(self._sizes))
