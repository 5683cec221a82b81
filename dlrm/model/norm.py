"""Layer normalization and offsets, whose parameters have squared gradients of single samples as linear layers have."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlrm.model.squares import SquareSlots


class LayerNorm(nn.Module):
    """h = g * (x - mean x) / std x + b over the last dimension (Ba et al. 2016, arXiv 1607.06450), in fp32.

    Gains and biases are vectors to an optimizer, of whatever shape they are for. They begin at 1 and 0.
    """

    square_slots: SquareSlots | None = None
    """Leaves that get the squared gradients of single samples in the backward pass; None: no squares."""

    def __init__(self, *shape: int) -> None:
        """Make gains and biases for inputs [c, …, *shape]; dimensions between share them."""
        super().__init__()
        self.shape = shape
        size = torch.Size(shape).numel()
        self.gain, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalise [c, …, *shape]."""
        normalized = F.layer_norm(inputs.to(self.gain.dtype), self.shape[-1:])
        outputs = normalized * self.gain.view(self.shape) + self.bias.view(self.shape)
        if self.square_slots is not None and torch.is_grad_enabled():
            outputs = _AddSquares.apply(outputs, normalized.detach(), self.square_slots.weight, self.square_slots.bias)
        return outputs


class _AddSquares(torch.autograd.Function):
    """Squares of a sample's gradients: d * x of g and d of b, with d the output's gradient and x normalized.

    Where elements share g and b, their gradients add up first.
    """

    @staticmethod
    def forward(
        ctx: Any,
        outputs: torch.Tensor,
        normalized: torch.Tensor,
        gain_slot: torch.Tensor,
        bias_slot: torch.Tensor,  # noqa: ARG004
    ) -> torch.Tensor:
        ctx.save_for_backward(normalized)
        ctx.size = gain_slot.shape[0]
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (d,) = grad_outputs
        (x,) = ctx.saved_tensors
        by_sample = [gradient.reshape(d.shape[0], -1, ctx.size).sum(dim=1) for gradient in (d * x, d)]
        return d, None, *(gradient.square().sum(dim=0) for gradient in by_sample)


class Offsets(nn.Module):
    """y = x + b, with numbers b that are a vector to an optimizer, and begin at 0."""

    square_slots: SquareSlots | None = None
    """Leaves that get the squared gradients of single samples in the backward pass; None: no squares."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.offsets = nn.Parameter(torch.zeros(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Add b [size] to each row of [c, size]."""
        outputs = inputs + self.offsets
        if self.square_slots is not None and torch.is_grad_enabled():
            outputs = _AddSquaresOfOffsets.apply(outputs, self.square_slots.weight)
        return outputs


class _AddSquaresOfOffsets(torch.autograd.Function):
    """Squares of a sample's gradients of b: each is the gradient of the output."""

    @staticmethod
    def forward(ctx: Any, outputs: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ARG004
        *grad_outputs: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        (d,) = grad_outputs
        return d, d.square().sum(dim=0)
