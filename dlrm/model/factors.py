"""Kronecker factors of a linear layer's Fisher matrix, which the backward pass may add up beside its own work."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dlrm.model.squares import compute_gradient_before_relu


@dataclass(frozen=True)
class FactorSlots:
    """Leaves whose gradients are the sums of a layer's factors over samples; their values are never read."""

    inputs: torch.Tensor
    """[m, m], sum of x x^T over the layer's inputs x [m] of single samples."""
    outputs: torch.Tensor
    """[n, n], sum of d d^T over the gradients d [n] of its outputs before the ReLU."""


def add_factors(outputs: torch.Tensor, inputs: torch.Tensor, slots: FactorSlots, *, is_activated: bool) -> torch.Tensor:
    """Return the outputs of a linear layer, through which the backward pass adds to `slots`.

    outputs: [c, n], after the layer's ReLU where `is_activated`. inputs: [c, m].
    """
    return _AddFactors.apply(outputs, inputs.detach(), slots.inputs, slots.outputs, is_activated)


class _AddFactors(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        outputs: torch.Tensor,
        inputs: torch.Tensor,
        input_slot: torch.Tensor,
        output_slot: torch.Tensor,  # noqa: ARG004
        is_activated: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, outputs if is_activated else None)
        ctx.dtype = input_slot.dtype
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = grad_outputs
        x, y = ctx.saved_tensors
        x, d = x.to(ctx.dtype), compute_gradient_before_relu(gradient, y).to(ctx.dtype)
        return gradient, None, x.T @ x, d.T @ d, None
