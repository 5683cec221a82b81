"""Variance reduction: between the backward pass and the optimizer, whichever it is."""

from typing import Any

import torch
from torch.optim import Optimizer

from dlrm.config import VarianceReductionConfig
from dlrm.gradient_stats import Moments
from dlrm.gradient_stats.variance_reduction.factors import AtBounds, Factors
from sharding.comm.gradient_buffer import GradientBuffer


class VarianceReduction:
    """VRGD (arXiv 2309.13681, algorithms 1 to 5): steps an optimizer with each element of the gradient, or of the
    update, scaled by its factor."""

    def __init__(
        self,
        config: VarianceReductionConfig,
        optimizer: Optimizer,
        parameters: list[torch.nn.Parameter],
        sums: GradientBuffer,
        *,
        layer_sizes: list[int],
        is_smoothed: bool,
        seed: int,
    ) -> None:
        """parameters: those of `sums`, in its order. layer_sizes: elements of each layer, over which ratios are
        normalised, in the same order. is_smoothed: factors are smoothed over steps by beta3, as for Adam and LAMB.
        seed: of the control `shuffled`."""
        self._config = config
        self._optimizer = optimizer
        self._parameters = parameters
        self._sums = sums
        self._layer_sizes = layer_sizes
        self._seed = seed
        beta = config.beta3 if is_smoothed else 0.0
        self._factors = Factors(torch.zeros_like(sums.gradient), layer_sizes, config.gamma, beta)

    def step(self, moments: Moments | None, index: int) -> AtBounds | None:
        """One step of the optimizer on the gradient in `sums`; between measurements with the last one's factors.

        index: batches before this one. Before the first measurement the gradient is left as it is. Answers for this
        step's own factors, before they are smoothed; None where nothing was measured.
        """
        at_bounds = None if moments is None else self._factors.move(moments)
        if not self.has_measured:
            self._optimizer.step()
            return None
        factor = self._controlled(self._factors.corrected(), index)
        if self._config.scale == "gradient":
            self._sums.gradient *= factor
            self._optimizer.step()
        else:
            self._scale_update(factor)
        return at_bounds

    @property
    def has_measured(self) -> bool:
        """Whether there is a variance to go by."""
        return self._factors.are_known

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds; tensors are not copied, and may be loaded in place."""
        factors = self._factors
        return {"variance": factors.variance, "smoothed": factors.smoothed, "num_measured": factors.num_moves}

    def _controlled(self, factor: torch.Tensor, index: int) -> torch.Tensor:
        if self._config.control is None:
            return factor
        parts = factor.split(self._layer_sizes)
        if self._config.control == "mean":
            return torch.cat([part.mean().expand_as(part) for part in parts])
        # The same on every rank, and in every attempt.
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + index) % 2**63)
        orders = [torch.randperm(len(part), generator=generator).to(part.device) for part in parts]
        return torch.cat([part[order] for part, order in zip(parts, orders, strict=True)])

    @torch.no_grad()
    def _scale_update(self, factor: torch.Tensor) -> None:
        before = [parameter.clone() for parameter in self._parameters]
        self._optimizer.step()
        for parameter, old, part in zip(self._parameters, before, self._sums.unflatten(factor), strict=True):
            torch.lerp(old, parameter, part, out=parameter)
