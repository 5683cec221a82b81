"""Variance reduction: between the backward pass and the optimizer, whichever it is."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from dlrm.config import VarianceReductionConfig
from dlrm.moments import Moments
from dlrm.moments.moments import LEAST_VARIANCE
from sharding.dense import FlatSums


@dataclass(frozen=True)
class AtBounds:
    """Shares of the elements of the dense parameters."""

    gamma: float
    """Those whose factor is the least."""
    one: float
    """Those that are left as they are."""


class VarianceReduction:
    """VRGD (arXiv 2309.13681, algorithms 1 to 5): steps an optimizer with each element of the gradient, or of the
    update, scaled by its squared signal-to-noise ratio, over the mean of its tensor and within [gamma, 1].

    The ratio is that of this step's gradient and of the variance of about one batch of samples: a step that measured a
    share of its batch moves the variance by that share. Few samples alone would miss those that make the variance of
    some elements, whose ratios would then rule the mean of their tensor.
    """

    def __init__(
        self,
        config: VarianceReductionConfig,
        optimizer: Optimizer,
        parameters: list[torch.nn.Parameter],
        sums: FlatSums,
        *,
        is_smoothed: bool,
        global_size: int,
        seed: int,
    ) -> None:
        """parameters: those of `sums`, in its order. is_smoothed: factors are smoothed over steps by beta3, as for Adam
        and LAMB. global_size: B. seed: of the control `shuffled`."""
        self._config = config
        self._optimizer = optimizer
        self._parameters = parameters
        self._sums = sums
        self._beta = config.beta3 if is_smoothed else 0.0
        self._global_size = global_size
        self._seed = seed
        self._variance = torch.zeros_like(sums.gradient)
        """[P], of the gradients of single samples."""
        self._smoothed = torch.zeros_like(sums.gradient)
        """[P], without bias correction."""
        self._num_measured = torch.zeros((), dtype=torch.int64)

    def step(self, moments: Moments | None, index: int) -> AtBounds | None:
        """One step of the optimizer on the gradient in `sums`; between measurements with the last one's factors.

        index: batches before this one. Before the first measurement the gradient is left as it is. Answers for this
        step's own factors, before they are smoothed; None where nothing was measured.
        """
        at_bounds = None if moments is None else self._measure(moments)
        if not self.has_measured:
            self._optimizer.step()
            return None
        factor = self._smoothed / (1 - self._beta ** self._num_measured.item())
        factor = self._controlled(factor, index)
        if self._config.scale == "gradient":
            self._sums.gradient *= factor
            self._optimizer.step()
        else:
            self._scale_update(factor)
        return at_bounds

    @property
    def has_measured(self) -> bool:
        """Whether there is a variance to go by."""
        return bool(self._num_measured)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds; tensors are not copied, and may be loaded in place."""
        return {"variance": self._variance, "smoothed": self._smoothed, "num_measured": self._num_measured}

    def _measure(self, moments: Moments) -> AtBounds:
        self._move_variance(moments)
        # r is at most 2^20, however little of an element was measured.
        ratio = moments.mean.square()
        variance = torch.maximum(self._variance, LEAST_VARIANCE * ratio)
        # Signs, here and below, since a `where` or a comparison takes as long as several such passes.
        is_alive = (moments.mean.abs() + moments.mean_square).sign_().mul_(self._variance.sign())
        ratio.div_(variance).nan_to_num_(nan=0.0).mul_(is_alive)
        for part, is_part_alive in zip(ratio.split(self._sums.sizes), is_alive.split(self._sums.sizes), strict=True):
            self._clip(part, is_part_alive)
        factor = ratio
        self._smoothed.lerp_(factor, 1 - self._beta)
        self._num_measured += 1
        at_bounds = [torch.eq(factor, bound, out=is_alive).sum() for bound in (self._config.gamma, 1.0)]
        return AtBounds(*(number / factor.numel() for number in torch.stack(at_bounds).tolist()))

    def _move_variance(self, moments: Moments) -> None:
        """By the share that was measured; of elements that were seen, since it is no news that a few samples miss some.

        One that was never seen before takes what is seen now.
        """
        share = moments.num_measured / self._global_size if self.has_measured else 1.0
        is_seen = moments.mean_square.sign()
        weight = torch.addcmul(is_seen, is_seen, self._variance.sign(), value=share - 1.0)
        self._variance.lerp_(moments.variance(), weight)

    def _clip(self, ratio: torch.Tensor, is_alive: torch.Tensor) -> None:
        """Make the ratios of one tensor its factors, in place; is_alive in ones and zeros. Elements without gradient
        are dead, and count in no mean; all of them dead are left alone.
        """
        mean_ratio = ratio.sum() / is_alive.sum()
        # Over a mean of nothing, or of 0.
        ratio.div_(mean_ratio).clamp_(self._config.gamma, 1.0).nan_to_num_(nan=1.0)

    def _controlled(self, factor: torch.Tensor, index: int) -> torch.Tensor:
        if self._config.control is None:
            return factor
        parts = factor.split(self._sums.sizes)
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
        for parameter, old, part in zip(self._parameters, before, self._sums.shaped(factor), strict=True):
            torch.lerp(old, parameter, part, out=parameter)
