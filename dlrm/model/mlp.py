"""Multilayer perceptrons: linear layers with their ReLU, and their initial weights."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlrm.config import ModelConfig
from dlrm.model.factors import FactorSlots, add_factors
from dlrm.model.products import (
    apply_linear,
    compute_input_gradient,
    compute_weight_gradient,
    has_onednn_products,
)
from dlrm.model.squares import SquareSlots, add_squares, compute_gradient_before_relu


class Linear(nn.Linear):
    """`nn.Linear` with an optional ReLU after it; both follow autocast as torch's own do."""

    square_slots: SquareSlots | None = None
    """Leaves that get the squared gradients of single samples in the backward pass; None: no squares."""
    factor_slots: FactorSlots | None = None
    """Leaves that get the factors of the Fisher matrix in the backward pass; None: no factors."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool = True, is_activated: bool = False) -> None:
        """Make the layer. is_activated: whether a ReLU follows."""
        super().__init__(num_inputs, num_outputs, bias=bias)
        self.is_activated = is_activated

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Map [c, …, num_inputs] to [c, …, num_outputs]; c samples."""
        outputs = self._apply_layer(input)
        if not torch.is_grad_enabled():
            return outputs
        if self.square_slots is not None:
            outputs = add_squares(outputs, input, self.square_slots, is_activated=self.is_activated)
        if self.factor_slots is not None:
            outputs = add_factors(outputs, input, self.factor_slots, is_activated=self.is_activated)
        return outputs

    def _apply_layer(self, input: torch.Tensor) -> torch.Tensor:
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.weight.dtype
        if has_onednn_products(input.device, dtype):
            # oneDNN has no fast kernel for rows with a gap between them, such as one table's of a chunk.
            rows = input.flatten(0, -2).contiguous()
            outputs = _OneDnnLinear.apply(rows, self.weight, self.bias, dtype, self.is_activated)
            return outputs.view(*input.shape[:-1], self.out_features)
        outputs = F.linear(input, self.weight, self.bias)
        return torch.relu(outputs) if self.is_activated else outputs


class ExactLinear(Linear):
    """`Linear` in the number format of its weights, even under autocast."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.to(self.weight.dtype))


class Perceptron(nn.Module):
    """Linear layers with a ReLU between them and optionally after the last one."""

    def __init__(
        self,
        num_inputs: int,
        widths: Sequence[int],
        *,
        is_last_activated: bool,
        generator: torch.Generator,
        is_last_exact: bool = False,
    ) -> None:
        """Make the layers.

        widths: outputs of each. generator: of the initial weights, on the CPU. is_last_exact: whether the last layer
        ignores autocast.
        """
        super().__init__()
        sizes = [num_inputs, *widths]
        self.layers = nn.Sequential()
        for number, (m, n) in enumerate(itertools.pairwise(sizes), start=1):
            kind = ExactLinear if is_last_exact and number == len(widths) else Linear
            layer = kind(m, n, is_activated=number < len(widths) or is_last_activated)
            draw_weight(layer, generator)
            draw_bias(layer, generator)
            self.layers.append(layer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map [c, num_inputs] to [c, widths[-1]]."""
        return self.layers(inputs)


def make_bottom(config: ModelConfig, num_dense: int, generator: torch.Generator) -> Perceptron | None:
    """Make the perceptron over the dense features; None if absent."""
    if num_dense == 0:
        return None
    return Perceptron(num_dense, config.bottom_mlp, is_last_activated=True, generator=generator)


@torch.no_grad()
def draw_weight(layer: nn.Linear, generator: torch.Generator) -> None:
    """Draw weights from a normal distribution of variance 2 / (inputs + outputs) (Glorot and Bengio 2010)."""
    layer.weight.normal_(std=math.sqrt(2 / (layer.in_features + layer.out_features)), generator=generator)


@torch.no_grad()
def draw_bias(layer: nn.Linear, generator: torch.Generator) -> None:
    """Draw biases from a normal distribution of variance 1 / outputs (Naumov et al. 2019, reference implementation)."""
    layer.bias.normal_(std=math.sqrt(1 / layer.out_features), generator=generator)


class _OneDnnLinear(torch.autograd.Function):
    """y = relu(x W^T + b), with x [c, m], W [n, m] and b [n], by products of oneDNN in `dtype`.

    With d [c, n] the gradient before the ReLU (the gradient of y where y > 0, else 0): dx = d W, dW = d^T x, db = sum
    over samples of d. Gradients have the dtype of what they are the gradient of.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        is_activated: bool,
    ) -> torch.Tensor:
        rounded, rounded_weight = inputs.to(dtype), weight.to(dtype)
        outputs = apply_linear(rounded, rounded_weight, None if bias is None else bias.to(dtype))
        if is_activated:
            # Not fused into the product: oneDNN's ReLU turns NaN into 0, and the step would not be dropped.
            torch.relu_(outputs)
        ctx.save_for_backward(rounded, rounded_weight, outputs if is_activated else None)
        ctx.dtypes = inputs.dtype, weight.dtype
        return outputs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = grad_outputs
        inputs, weight, outputs = ctx.saved_tensors
        input_dtype, weight_dtype = ctx.dtypes
        gradient = compute_gradient_before_relu(gradient, outputs).contiguous()
        needs_inputs, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        return (
            compute_input_gradient(gradient, weight).to(input_dtype) if needs_inputs else None,
            compute_weight_gradient(gradient, inputs).to(weight_dtype) if needs_weight else None,
            gradient.sum(dim=0, dtype=weight_dtype) if needs_bias else None,
            None,
            None,
        )
