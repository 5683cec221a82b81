"""Moments over single samples, without a backward pass for each."""

import math
from functools import partial

import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.gradient_stats.estimator import MeasuringEstimator, SampleSpan, Share
from dlrm.gradient_stats.moments import Moments
from dlrm.model.mlp import Linear, compute_weight_gradient, has_onednn_products
from dlrm.native import has_native_operators
from sharding.comm.gradient_buffer import GradientBuffer


class ExactMoments(MeasuringEstimator):
    """Estimator that sums the squared gradients of single samples, for every `nn.Linear` that is used once per sample.

    With x_i the layer's input for sample i and d_i the gradient of its output, the gradient of the weight is d_i x_i^T.
    The sum of its square over samples, sum_i (d_i x_i^T)^2 = (D^2)^T (X^2) with squares element by element, is one more
    matrix product, of D [c, outputs] and X [c, inputs] (Goodfellow 2015, arXiv 1510.01799, whose norms are the sums of
    these elements). For a bias it is sum_i d_i^2. Under bf16 autocast the squares are bf16, their sums fp32.

    Where only a part of the batch is measured, it is the first samples, of which all ranks have the same number up to
    one, for any number of ranks and any chunk. Their gradient is summed separately.
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
        """Register hooks on the linear layers of `model`, whose parameters are those of `gradients`.

        Other arguments: as for `MeasuringEstimator`. Raises ValueError for a parameter that no linear layer has.
        """
        super().__init__(gradients, has_halves=has_halves)
        self._is_bf16 = is_bf16
        self._is_adding_squares = False
        """Whether the hooks add squares: only during spans of measured samples."""
        self._fraction = config.fraction
        self._num_measured = 0
        """Number of measured samples of the current batch, over all ranks."""
        self._sum_of_measured = gradients.extra_sums[1] if config.has_own_sum else None
        """[P] gradient summed over the measured samples, where these are a part of the batch."""
        names = [name for name, _ in model.named_parameters()]
        self._squares = dict(zip(names, gradients.unflatten(gradients.extra_sums[0]), strict=True))
        covered: set[str] = set()
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear):
                covered |= {f"{name}.weight", f"{name}.bias"}
                self._register_hook(name, layer)
        missing = [name for name in names if name not in covered]
        if missing:
            raise ValueError(f"exact moments do not cover {missing[0]}: it is not a parameter of an nn.Linear")

    def _begin_measured_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:
        is_all = is_whole or self._sum_of_measured is None
        # At least two samples, without which there is no variance.
        wanted = share.num_valid if is_all else max(2, math.ceil(self._fraction * share.num_valid))
        self._num_measured = min(wanted, share.num_valid)
        measured_end = share.size if is_all else share.count_among_first(self._num_measured)
        half_end = 0 if self._halves is None else share.count_among_first(self._halves.num_first)
        ends = sorted({measured_end, half_end, share.size})
        # The first span ends at `measured_end` at the latest; where that is 0, the span is empty.
        self._is_adding_squares = True
        return [SampleSpan(end, partial(self._end_span, end, measured_end, half_end)) for end in ends]

    def _end_span(self, end: int, measured_end: int, half_end: int) -> None:
        """Copy the gradient, the sum over all samples before `end`, where the measured part or the first half ends."""
        if end == measured_end and self._sum_of_measured is not None:
            self._sum_of_measured.copy_(self._gradients.gradient)
        if end == half_end and self._sum_of_first_half is not None:
            self._sum_of_first_half.copy_(self._gradients.gradient)
        self._is_adding_squares = end < measured_end

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

    def _register_hook(self, name: str, layer: nn.Linear) -> None:
        """Have forward passes of `layer` register a hook on the gradient of its output, for measured samples only."""
        weight_squares = self._squares[f"{name}.weight"]
        bias_squares = self._squares.get(f"{name}.bias")
        is_activated = isinstance(layer, Linear) and layer.is_activated

        def add_hook(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if self._is_adding_squares:
                (x,) = inputs
                if x.dim() != 2:
                    raise ValueError(f"{name} has inputs {list(x.shape)}, and exact moments need one row per sample")
                x, y = x.detach(), output.detach() if is_activated else None
                output.register_hook(lambda d: self._add_squares(x, d, y, weight_squares, bias_squares))

        layer.register_forward_hook(add_hook)

    @torch.no_grad()
    def _add_squares(
        self,
        x: torch.Tensor,
        d: torch.Tensor,
        y: torch.Tensor | None,
        weight_squares: torch.Tensor,
        bias_squares: torch.Tensor | None,
    ) -> None:
        """Add the squares of a chunk. x: [c, inputs]. d, y: [c, outputs]; y is None where no ReLU follows."""
        dtype = torch.bfloat16 if self._is_bf16 else weight_squares.dtype
        x_squared, d_squared = x.to(dtype).square(), square_output_gradient(d, y, bias_squares, dtype)
        # [outputs, inputs]: sum over the c samples of (d x^T)^2.
        if has_onednn_products(x.device, dtype):
            weight_squares += compute_weight_gradient(d_squared, x_squared)
        else:
            weight_squares += d_squared.T @ x_squared


def square_output_gradient(
    d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """Square the gradient of a linear layer's output, sample by sample: [c, outputs] of `dtype`.

    d: gradient of y, the output after the layer's ReLU; y is None where it has none. bias_squares: [outputs], to which
    the sums over samples are added, since the gradient of the bias for a sample is that of the output.
    """
    if _fits_native_operator(d, y, bias_squares, dtype):
        return torch.ops.dlrm_dense.square_gradient(d, y, bias_squares)
    if y is not None:
        # The gradient before the ReLU: d where y > 0, else 0.
        d = torch.ops.aten.threshold_backward(d, y, 0)
    d_squared = d.to(dtype).square()
    if bias_squares is not None:
        bias_squares += d_squared.sum(dim=0, dtype=bias_squares.dtype)
    return d_squared


def _fits_native_operator(
    d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype
) -> bool:
    """Whether the native operator supports these tensors: all of one dtype that it knows, and sums in fp32."""
    is_one_dtype = d.dtype == dtype and (y is None or y.dtype == dtype)
    is_known = dtype in (torch.float32, torch.bfloat16)
    are_sums_fp32 = bias_squares is None or bias_squares.dtype == torch.float32
    return d.device.type == "cpu" and is_one_dtype and is_known and are_sums_fp32 and has_native_operators()
