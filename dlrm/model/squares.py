"""Sums of the squared gradients of single samples, which the backward pass of a linear layer may add beside its own."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dlrm.model.products import compute_weight_gradient, has_onednn_products
from dlrm.native import has_native_operators


@dataclass(frozen=True)
class SquareSlots:
    """Leaves whose gradients are the sums of squares of a layer's parameters; their values are never read.

    A leaf has a gradient that autograd adds to: so the squares are a part of the backward pass, whether that runs as it
    is, is compiled or is recorded as a CUDA graph.
    """

    weight: torch.Tensor
    """[outputs, inputs]"""
    bias: torch.Tensor | None
    """[outputs], or None if the layer has no bias."""
    dtype: torch.dtype
    """Number format of the squares; their sums have the slots' format."""


def make_slot(sums: torch.Tensor) -> torch.Tensor:
    """Make a leaf whose gradient is `sums`. It takes no memory of its own."""
    slot = sums.new_zeros(()).expand(sums.shape).requires_grad_()
    slot.grad = sums
    return slot


def add_squares(outputs: torch.Tensor, inputs: torch.Tensor, slots: SquareSlots, *, is_activated: bool) -> torch.Tensor:
    """Return the outputs of a linear layer, through which the backward pass adds to `slots`.

    With x_i [inputs] the layer's input for sample i and d_i [outputs] the gradient of its output before the ReLU, the
    gradient of the weight is d_i x_i^T. The sum of its square over samples, sum_i (d_i x_i^T)^2 = (D^2)^T (X^2) with
    squares element by element, is one more matrix product (Goodfellow 2015, arXiv 1510.01799, whose norms are the sums
    of these elements). For a bias it is sum_i d_i^2.

    If a layer is applied to r rows of a sample, the sample's gradient is the sum over them, and exists for a moment:
    one matrix a sample.

    outputs: [c, outputs] or [c, r, outputs], after the layer's ReLU where `is_activated`. inputs: [c, inputs] or
    [c, r, inputs].
    """
    kind = _AddSquares if inputs.dim() == 2 else _AddSquaresOfSums
    return kind.apply(outputs, inputs.detach(), slots.weight, slots.bias, slots.dtype, is_activated)


def compute_gradient_before_relu(gradient: torch.Tensor, outputs: torch.Tensor | None) -> torch.Tensor:
    """Return the gradient before a layer's ReLU: `gradient` where the layer's outputs are above 0, else 0.

    outputs: after the ReLU; None if the layer has none, and the gradient stays as it is.
    """
    return gradient if outputs is None else torch.ops.aten.threshold_backward(gradient, outputs, 0)


def square_output_gradient(
    d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """Square the gradient of a linear layer's output, sample by sample: [c, outputs] of `dtype`.

    d: gradient of y, the output after the layer's ReLU; y is None if it has none. bias_squares: [outputs], to which the
    sums over samples are added: a sample's gradient of the bias is its gradient of the output.
    """
    if _fits_native_operator(d, y, bias_squares, dtype):
        return torch.ops.dlrm_dense.square_gradient(d, y, bias_squares)
    d_squared = compute_gradient_before_relu(d, y).to(dtype).square()
    if bias_squares is not None:
        bias_squares += d_squared.sum(dim=0, dtype=bias_squares.dtype)
    return d_squared


class _AddSquares(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        outputs: torch.Tensor,
        inputs: torch.Tensor,
        weight_slot: torch.Tensor,
        bias_slot: torch.Tensor | None,
        dtype: torch.dtype,
        is_activated: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, outputs if is_activated else None)
        ctx.dtypes, ctx.has_bias = (dtype, weight_slot.dtype), bias_slot is not None
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (d,) = grad_outputs
        x, y = ctx.saved_tensors
        dtype, sum_dtype = ctx.dtypes
        bias_squares = d.new_zeros(d.shape[1], dtype=sum_dtype) if ctx.has_bias else None
        d_squared = square_output_gradient(d, y, bias_squares, dtype)
        x_squared = x.to(dtype).square()
        if has_onednn_products(x.device, dtype):
            weight_squares = compute_weight_gradient(d_squared, x_squared)
        else:
            weight_squares = d_squared.T @ x_squared
        return d, None, weight_squares.to(sum_dtype), bias_squares, None, None


class _AddSquaresOfSums(_AddSquares):
    """The same for inputs [c, r, inputs]."""

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = grad_outputs
        x, y = ctx.saved_tensors
        dtype, sum_dtype = ctx.dtypes
        d = compute_gradient_before_relu(gradient, y)
        of_weight = torch.bmm(d.to(dtype).transpose(1, 2), x.to(dtype)).to(sum_dtype)
        of_bias = d.sum(dim=1, dtype=sum_dtype).square().sum(dim=0) if ctx.has_bias else None
        return gradient, None, of_weight.square().sum(dim=0), of_bias, None, None


def _fits_native_operator(
    d: torch.Tensor, y: torch.Tensor | None, bias_squares: torch.Tensor | None, dtype: torch.dtype
) -> bool:
    """Whether the native operator supports these tensors: all of one dtype that it knows, and sums in fp32."""
    is_one_dtype = d.dtype == dtype and (y is None or y.dtype == dtype)
    is_known = dtype in (torch.float32, torch.bfloat16)
    are_sums_fp32 = bias_squares is None or bias_squares.dtype == torch.float32
    return d.device.type == "cpu" and is_one_dtype and is_known and are_sums_fp32 and has_native_operators()
