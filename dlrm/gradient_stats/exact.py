"""Moments over single samples, without a backward pass for each."""

import math
from functools import partial

import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.gradient_stats.estimator import MeasuringEstimator, SampleSpan, Share
from dlrm.gradient_stats.moments import Moments
from dlrm.model.mlp import ExactLinear, Linear
from dlrm.model.norm import LayerNorm, Offsets
from dlrm.model.squares import SquareSlots, make_slot
from sharding.comm.gradient_buffer import GradientBuffer

_Layer = Linear | LayerNorm | Offsets


class ExactMoments(MeasuringEstimator):
    """Estimator over the squared gradients of single samples, for linear layers and layer normalization.

    The layers add them in their backward pass (`dlrm.model.squares`). Under bf16 autocast the squares are bf16, their
    sums fp32.

    If only a part of the batch is measured, it is the first samples: all ranks have the same number up to one, for any
    number of ranks and any chunk. Their gradient is summed separately.
    """

    def __init__(
        self,
        config: MomentsConfig,
        model: nn.Module,
        gradients: GradientBuffer,
        *,
        is_bf16: bool,
        has_halves: bool = False,
    ) -> None:
        """Find the layers of `model`, whose parameters are in `gradients`.

        Other arguments: as for `MeasuringEstimator`. Raises ValueError for a parameter of another kind of layer.
        """
        super().__init__(gradients, has_halves=has_halves)
        self._fraction = config.fraction
        self._num_measured = 0
        """Number of measured samples of the current batch, over all ranks."""
        self._sum_of_measured = gradients.extra_sums[1] if config.has_own_sum else None
        """[P] gradient summed over the measured samples, where these are a part of the batch."""
        self._layers = _find_layers(model, gradients, torch.bfloat16 if is_bf16 else gradients.gradient.dtype)

    def _begin_measured_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:
        is_all = is_whole or self._sum_of_measured is None
        # At least two samples, without which there is no variance.
        wanted = share.num_valid if is_all else max(2, math.ceil(self._fraction * share.num_valid))
        self._num_measured = min(wanted, share.num_valid)
        measured_end = share.size if is_all else share.count_among_first(self._num_measured)
        half_end = 0 if self._halves is None else share.count_among_first(self._halves.num_first)
        ends = sorted({measured_end, half_end, share.size})
        # The first span ends at `measured_end` at the latest; where that is 0, the span is empty.
        self._add_squares(is_wanted=True)
        return [SampleSpan(end, partial(self._end_span, end, measured_end, half_end)) for end in ends]

    def _end_span(self, end: int, measured_end: int, half_end: int) -> None:
        """Copy the gradient, the sum over all samples before `end`, where the measured part or the first half ends."""
        if end == measured_end and self._sum_of_measured is not None:
            self._sum_of_measured.copy_(self._gradients.gradient)
        if end == half_end and self._sum_of_first_half is not None:
            self._sum_of_first_half.copy_(self._gradients.gradient)
        self._add_squares(is_wanted=end < measured_end)

    def compute_moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        num_measured = self._num_measured
        if not self.is_measuring or num_measured < 2:
            return None
        mean = measured_mean = self._gradients.gradient
        # s = 1 / n_m sum_i (G_i / m)^2 with G_i the gradient of sample i's weighted loss and m the mean weight. This is
        # in place: the next batch begins with zeros anyway.
        mean_square = self._gradients.extra_sums[0].div_(num_measured * mean_weight**2)
        if self._sum_of_measured is not None and num_measured < num_valid:
            measured_mean = self._sum_of_measured.div_(num_measured * mean_weight)
        first_half = self._average_first_half(num_valid, mean_weight)
        return Moments(mean, mean_square, measured_mean, num_valid, num_measured, num_measured, first_half)

    def _add_squares(self, *, is_wanted: bool) -> None:
        """Have the layers add squares in their backward passes from here on, or stop it."""
        self.is_adding_squares = is_wanted
        for layer, slots in self._layers:
            layer.square_slots = slots if is_wanted else None


def _find_layers(model: nn.Module, gradients: GradientBuffer, dtype: torch.dtype) -> list[tuple[_Layer, SquareSlots]]:
    """Return the layers of `model` with slots for their squares, of `dtype`, in the first extra sum.

    Raises ValueError for a parameter that no such layer has.
    """
    names = [name for name, _ in model.named_parameters()]
    left = dict(zip(names, gradients.unflatten(gradients.extra_sums[0]), strict=True))
    factors = {Linear: "weight", ExactLinear: "weight", LayerNorm: "gain", Offsets: "offsets"}
    layers: list[tuple[_Layer, SquareSlots]] = []
    for name, layer in model.named_modules():
        if isinstance(layer, _Layer):
            factor = left.pop(f"{name}.{factors[type(layer)]}")
            bias = left.pop(f"{name}.bias", None)
            layers.append((layer, SquareSlots(make_slot(factor), None if bias is None else make_slot(bias), dtype)))
    if left:
        raise ValueError(f"exact moments do not cover {next(iter(left))}: no layer adds its squares")
    return layers
