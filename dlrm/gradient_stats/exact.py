"""Moments over single samples, without a backward pass for each."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.gradient_stats.estimator import MeasuringEstimator
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.positions import Share, chunks_of
from dlrm.gradient_stats.squares import squared_gradient
from dlrm.model.linear import Linear
from dlrm.model.products import has_own_products, weight_gradient
from sharding.comm.gradient_buffer import GradientBuffer


class ExactMoments(MeasuringEstimator):
    """Sums the squared gradients of the samples of every `nn.Linear` that is used once a sample.

    A sample's gradient of a weight is d x^T, with the layer's input x and the gradient d of its output, so that the sum
    of its square over samples is (d^2)^T (x^2): one more matrix product (Goodfellow 2015, arXiv 1510.01799, whose norms
    are the sums of these elements). Under bf16 autocast the squares are bf16, their sums fp32.

    Where a share of the batch is measured, these are its first samples, which all ranks have evenly, whatever their
    number and the chunk; their gradient is summed apart.
    """

    def __init__(
        self,
        config: MomentsConfig,
        model: nn.Module,
        sums: GradientBuffer,
        chunk_size: int,
        every: int,
        *,
        is_bf16: bool,
        has_halves: bool = False,
    ) -> None:
        """model: its parameters are those of `sums`. Others: see `MeasuringEstimator`.

        Raises ValueError for a parameter that no linear layer has.
        """
        super().__init__(sums, chunk_size, every, has_halves=has_halves)
        self._is_bf16 = is_bf16
        self._is_watching = False
        self._fraction = config.fraction
        self._num_measured = 0
        """Of the batch that is measured now, over all ranks."""
        self._sum_of_measured = sums.extra_sums[1] if config.has_own_sum else None
        """[P] Where only some samples are measured."""
        names = [name for name, _ in model.named_parameters()]
        self._squares = dict(zip(names, sums.unflatten(sums.extra_sums[0]), strict=True))
        covered: set[str] = set()
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                covered |= {f"{name}.weight", f"{name}.bias"}
                self._watch(name, layer)
        missing = [name for name in names if name not in covered]
        if missing:
            raise ValueError(f"no estimator of exact moments for {missing[0]}: it is no parameter of an nn.Linear")

    def _measured_chunks(self, share: Share, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        is_all = is_whole or self._sum_of_measured is None
        wanted = share.num_valid if is_all else max(2, math.ceil(self._fraction * share.num_valid))
        num_measured = min(wanted, share.num_valid)
        self._num_measured = num_measured
        measured_end = share.size if is_all else share.num_among_first(num_measured)
        half_end = 0 if self._halves is None else share.num_among_first(self._halves.num_first)
        start = 0
        for end in sorted({measured_end, half_end, share.size}):
            self._is_watching = end <= measured_end
            yield from chunks_of(start, end, self._chunk_size)
            # The gradient is now that of all samples before `end`.
            if end == measured_end and self._sum_of_measured is not None:
                self._sum_of_measured.copy_(self._sums.gradient)
            if end == half_end and self._sum_of_first_half is not None:
                self._sum_of_first_half.copy_(self._sums.gradient)
            start = end
        self._is_watching = False

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        num_measured = self._num_measured
        if not self.is_measuring or num_measured < 2:
            return None
        mean = measured_mean = self._sums.gradient
        # In place: the next batch begins with zeros anyway.
        mean_square = self._sums.extra_sums[0].div_(num_measured * mean_weight**2)
        if self._sum_of_measured is not None and num_measured < num_valid:
            measured_mean = self._sum_of_measured.div_(num_measured * mean_weight)
        first_half = self._first_half(num_valid, mean_weight)
        return Moments(mean, mean_square, measured_mean, num_valid, num_measured, num_measured, first_half)

    def _watch(self, name: str, layer: nn.Linear) -> None:
        weight_squares = self._squares[f"{name}.weight"]
        bias_squares = self._squares.get(f"{name}.bias")
        is_activated = isinstance(layer, Linear) and layer.is_activated

        def watch(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if self._is_watching:
                (x,) = inputs
                if x.dim() != 2:
                    raise ValueError(f"{name} has inputs {list(x.shape)}, and exact moments need one a sample")
                x, y = x.detach(), output.detach() if is_activated else None
                output.register_hook(lambda d: self._add(x, d, y, weight_squares, bias_squares))

        layer.register_forward_hook(watch)

    @torch.no_grad()
    def _add(
        self,
        x: torch.Tensor,
        d: torch.Tensor,
        y: torch.Tensor | None,
        weight_squares: torch.Tensor,
        bias_squares: torch.Tensor | None,
    ) -> None:
        """x [c, inputs], d and y [c, outputs]"""
        dtype = torch.bfloat16 if self._is_bf16 else weight_squares.dtype
        x_squared, d_squared = x.to(dtype).square(), squared_gradient(d, y, bias_squares, dtype)
        if has_own_products(x.device, dtype):
            weight_squares += weight_gradient(d_squared, x_squared)
        else:
            weight_squares += d_squared.T @ x_squared
