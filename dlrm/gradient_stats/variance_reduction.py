"""Variance reduction (VRGD): a preconditioner between the backward pass and any optimizer.

Scales each element of the gradient by its squared signal-to-noise ratio r = g^2 / sigma^2, divided by the mean of r
over the layer and clipped to [gamma, 1] (arXiv 2309.13681, algorithms 1 to 5; docs/methods.md lists the
differences).
"""

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from dlrm.config import VarianceReductionConfig
from dlrm.gradient_stats.moments import MIN_VARIANCE_FRACTION, Moments
from dlrm.gradient_stats.parts import expand_parts, sum_parts
from dlrm.native import fits_native_fp32
from sharding.comm.gradient_buffer import GradientBuffer


@dataclass(frozen=True)
class ClippedFractions:
    """Fractions of the elements of all dense parameters whose factor is at a bound."""

    at_gamma: float
    """Fraction of elements with the least factor, gamma."""
    at_one: float
    """Fraction of elements with factor 1, whose gradient stays as it is."""


class VarianceReduction:
    """Preconditioner that scales the gradient before the optimizer's step, or the step itself."""

    def __init__(
        self,
        config: VarianceReductionConfig,
        parameters: list[torch.nn.Parameter],
        gradients: GradientBuffer,
        *,
        layer_sizes: list[int],
        is_smoothed: bool,
        seed: int,
    ) -> None:
        """Allocate variances and factors. parameters: the parameters of `gradients`, in its order.

        layer_sizes: number of elements of each layer (weight and bias together), in the same order; ratios are
        normalised over a layer. is_smoothed: smooth factors over steps by beta3, as the paper does for Adam and LAMB.
        seed: of the control "shuffled".
        """
        self._config = config
        self._parameters = parameters
        self._gradients = gradients
        self._layer_sizes = layer_sizes
        self._seed = seed
        beta = config.beta3 if is_smoothed else 0.0
        self._factors = Factors(torch.zeros_like(gradients.gradient), layer_sizes, config.gamma, beta)
        self._update_factor: torch.Tensor | None = None
        """[P] factors of the optimizer's step, where `finish_update` scales the step; else None."""
        self._before = torch.empty(0)
        """[P] the parameters before that step."""

    def precondition(self, moments: Moments | None, index: int) -> torch.Tensor | None:
        """Update the factors by the moments of this step, and scale the gradient by them. The optimizer steps next.

        Between measurements the last factors hold; before the first one the gradient stays as it is. index: number of
        batches before this one. Returns the fractions of this step's own factors at gamma and at 1, before they are
        smoothed: [2] float64 on the device; None if nothing was measured.
        """
        clipped = None if moments is None else self._factors.update(moments)
        self._update_factor = None
        if not self.is_initialised:
            return None
        factor = self._apply_control(self._factors.correct_bias(), index)
        if self._config.scale == "gradient":
            self._gradients.gradient *= factor
        else:
            self._update_factor = factor
            self._before = torch.cat([parameter.detach().flatten() for parameter in self._parameters])
        return clipped

    @torch.no_grad()
    def finish_update(self) -> None:
        """Scale the optimizer's step where `scale` says so. Called after each step of the optimizer."""
        if self._update_factor is None:
            return
        before, factors = (self._gradients.unflatten(flat) for flat in (self._before, self._update_factor))
        # w = w_before + r (w_stepped - w_before)
        parameters = list[torch.Tensor](self._parameters)
        torch._foreach_lerp_(before, parameters, factors)
        torch._foreach_copy_(parameters, before)
        self._update_factor, self._before = None, torch.empty(0)

    def set_growth(self, growth: float) -> None:
        """Set how many times the samples of the run's first batch the next step has, so that memory is in samples."""
        self._factors.growth = growth

    @property
    def is_initialised(self) -> bool:
        """Whether a variance was measured."""
        return self._factors.is_initialised

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; tensors are not copied, and may be loaded in place."""
        factors = self._factors
        return {"variance": factors.variance, "smoothed": factors.smoothed, "num_measured": factors.num_updates}

    def _apply_control(self, factor: torch.Tensor, index: int) -> torch.Tensor:
        """Replace the factors [P] of each layer by their mean, or shuffle them, as a control experiment."""
        if self._config.control is None:
            return factor
        if self._config.control == "mean":
            sums, counts = sum_parts([factor, torch.ones_like(factor)], self._layer_sizes)
            return expand_parts((sums / counts).to(factor.dtype), self._layer_sizes)
        # The same order on every rank and in every attempt, another one in every step.
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + index) % 2**63)
        orders = [torch.randperm(size, generator=generator) for size in self._layer_sizes]
        starts = accumulate(self._layer_sizes, initial=0)
        order = torch.cat([start + order for start, order in zip(starts, orders, strict=False)])
        return factor.index_select(0, order.to(factor.device))


class Factors:
    """Factors [P] on the elements of the dense parameters.

    With g the mean gradient of this step and sigma^2 the variance of the gradients of single samples:

        r = g^2 / sigma^2,   factor = clip(r / (mean of r over the layer), gamma, 1),   p = beta p + (1 - beta) factor

    and p / (1 - beta^t) scales the gradient. sigma^2 covers about one batch of samples: a step that measures a fraction
    f of its batch moves the variance by f. A small sample alone misses rare features: their variance reads about 0,
    their ratio explodes and dominates the layer's mean.
    """

    def __init__(self, zeros: torch.Tensor, layer_sizes: list[int], gamma: float, beta: float) -> None:
        """Begin without a variance. zeros: [P] of the parameters' dtype and device. beta: 0 for no smoothing."""
        self.variance = zeros
        """[P] variance of the gradients of single samples."""
        self.smoothed = zeros.clone()
        """p [P], smoothed factors, without bias correction."""
        self.num_updates = torch.zeros((), dtype=torch.float64)
        """Number of updates; one of k times the samples of the first counts k times."""
        self.growth = 1.0
        """k of the next update, which keeps beta^k of p: more than 1 where memory is in samples and the batch grows."""
        self._layer_sizes, self._gamma, self._beta = layer_sizes, gamma, beta

    @property
    def is_initialised(self) -> bool:
        """Whether a variance was measured."""
        return bool(self.num_updates)

    def correct_bias(self) -> torch.Tensor:
        """Compute p / (1 - beta^t) [P], the smoothed factors without the bias of p = 0 at the start, as Adam does."""
        return self.smoothed / (1 - self._beta ** self.num_updates.item())

    def update(self, moments: Moments) -> torch.Tensor | None:
        """Update variance and factors by the moments of one step, in place.

        The variance moves by the fraction of the batch that was measured, the first time by all of it. Returns the
        fractions of this step's own factors at gamma and at 1, before they are smoothed: [2] float64 on the device;
        None, and nothing changes, as long as no sample had a gradient, as in a batch whose weights are all 0.
        """
        # The host waits for the device until the first measurement, and no more after it.
        if not self.is_initialised and not moments.mean_square.any():
            return None
        update = self._update_by_native_operator if fits_native_fp32(self.variance) else self._update_in_plain_torch
        measured_fraction = moments.num_measured / moments.num_samples
        fractions = update(moments, measured_fraction if self.is_initialised else 1.0)
        self.num_updates += self.growth
        return fractions

    def _update_by_native_operator(self, moments: Moments, measured_fraction: float) -> torch.Tensor:
        """Do the same as `_update_in_plain_torch`, in two passes over the elements instead of about twenty."""
        counts = torch.ops.dlrm_dense.update_factors(
            self.variance,
            self.smoothed,
            moments.mean,
            moments.mean_square,
            moments.measured_mean,
            self._layer_sizes,
            moments.per_sample_scale,
            MIN_VARIANCE_FRACTION,
            measured_fraction,
            self._gamma,
            1 - self._beta**self.growth,
        )
        return torch.tensor(counts, dtype=torch.float64) / self.variance.numel()

    def _update_in_plain_torch(self, moments: Moments, measured_fraction: float) -> torch.Tensor:
        """Update variance and smoothed factors in place. Return the fractions [2] of factors at gamma and at 1."""
        self._update_variance(moments, measured_fraction)
        ratio = moments.mean.square().div_(self.variance)
        # An element is alive if it has a gradient in this step and a variance. One whose ratio is not finite counts as
        # dead: it must not make the mean of its layer NaN. Without a variance the ratio is infinite, or 0 / 0.
        is_alive = (ratio < math.inf).logical_and_(torch.logical_or(moments.mean, moments.mean_square))
        # r = g^2 / max(sigma^2, 2^-20 g^2): at most 2^20, however few samples of an element were measured.
        ratio.nan_to_num_(nan=0.0, posinf=0.0).clamp_(max=1 / MIN_VARIANCE_FRACTION)
        factor = self._clip(ratio, is_alive)
        self.smoothed.lerp_(factor, 1 - self._beta**self.growth)
        return torch.stack([factor <= self._gamma, factor >= 1.0]).mean(dim=1, dtype=torch.float64)

    def _update_variance(self, moments: Moments, measured_fraction: float) -> None:
        """Move the variance towards this step's, sigma^2 += weight (sigma_now^2 - sigma^2).

        The weight is the measured fraction of the batch; 0 for an element without a gradient in this step,
        since a few samples say nothing about rare elements; and 1 for one that had no variance before.
        """
        has_gradient = moments.mean_square.sign()
        # h + (measured_fraction - 1) h v with h = has_gradient and v = has a variance, both 0 or 1.
        weight = torch.addcmul(has_gradient, has_gradient, self.variance.sign(), value=measured_fraction - 1.0)
        self.variance.lerp_(moments.compute_variance(), weight)

    def _clip(self, ratio: torch.Tensor, is_alive: torch.Tensor) -> torch.Tensor:
        """Turn the ratios r [P] into factors clip(r / mean r over the layer, gamma, 1), in place.

        Dead elements do not count in the mean and get gamma; a layer of dead elements only gets 1, no scaling.
        is_alive: [P] bool.
        """
        sums, num_alive = sum_parts([ratio, is_alive.to(ratio.dtype)], self._layer_sizes)
        mean_ratio = (sums / num_alive).to(ratio.dtype)
        # 0 / 0 is NaN: in a layer without a live element, or with a mean of 0.
        return ratio.div_(expand_parts(mean_ratio, self._layer_sizes)).clamp_(self._gamma, 1.0).nan_to_num_(nan=1.0)
