"""Multilayer perceptrons: linear layers with their ReLU, their initial weights, and their matrix products.

On a CPU products use the faster of the two libraries that torch has, MKL and oneDNN. The choice depends on processor
and dtype only, never on a measurement, so that all ranks and all attempts of a run round alike.
"""

import itertools
import math
import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlrm.config import ModelConfig

_onednn_linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
"""The product that torch's compiler calls for a linear layer. `torch.nn.functional.linear` uses MKL for fp32, which
uses only half of the vector units of an AMD processor."""
_HAS_ONEDNN = _onednn_linear is not None and platform.machine() in ("x86_64", "AMD64")
_NARROW = 32
"""Number of inputs of a layer below which the gradient of its weights is faster as the transposed product."""
_TILE_COLUMNS = 32
"""Number of bf16 elements in a row of an AMX tile."""
_HAS_AMX = torch.cpu._is_amx_tile_supported()
"""Whether oneDNN may multiply bf16 matrices by tiles on this processor."""


class Linear(nn.Linear):
    """`nn.Linear` with an optional ReLU after it; both follow autocast as torch's own do."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool = True, is_activated: bool = False) -> None:
        """Make the layer. is_activated: whether a ReLU follows."""
        super().__init__(num_inputs, num_outputs, bias=bias)
        self.is_activated = is_activated

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Map [c, num_inputs] to [c, num_outputs]."""
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.weight.dtype
        if input.dim() == 2 and has_onednn_products(input.device, dtype):
            return _OneDnnLinear.apply(input, self.weight, self.bias, dtype, self.is_activated)
        outputs = F.linear(input, self.weight, self.bias)
        return torch.relu(outputs) if self.is_activated else outputs


class Perceptron(nn.Module):
    """Linear layers with a ReLU between them and optionally after the last one."""

    def __init__(
        self, num_inputs: int, widths: Sequence[int], *, is_last_activated: bool, generator: torch.Generator
    ) -> None:
        """Make the layers. widths: outputs of each. generator: of the initial weights, on the CPU."""
        super().__init__()
        sizes = [num_inputs, *widths]
        self.layers = nn.Sequential()
        for number, (m, n) in enumerate(itertools.pairwise(sizes), start=1):
            layer = Linear(m, n, is_activated=number < len(widths) or is_last_activated)
            draw_weight(layer, generator)
            draw_bias(layer, generator)
            self.layers.append(layer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map [c, num_inputs] to [c, widths[-1]]."""
        return self.layers(inputs)


def make_bottom(config: ModelConfig, num_dense: int, generator: torch.Generator) -> Perceptron | None:
    """Make the perceptron over the dense features; None where there are none."""
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

    With d [c, n] the gradient before the ReLU, which is that of y where y > 0 and else 0: dx = d W, dW = d^T x,
    db = sum over samples of d. Gradients have the dtype of what they are the gradient of.
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
        if outputs is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, outputs, 0)
        needs_inputs, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        return (
            compute_input_gradient(gradient, weight).to(input_dtype) if needs_inputs else None,
            compute_weight_gradient(gradient, inputs).to(weight_dtype) if needs_weight else None,
            gradient.sum(dim=0, dtype=weight_dtype) if needs_bias else None,
            None,
            None,
        )


def has_onednn_products(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the products below support matrices of this device and dtype."""
    if device.type != "cpu" or not _HAS_ONEDNN:
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def apply_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute inputs weight^T + bias: [c, m], [n, m] and [n] to [c, n]. Without autograd."""
    assert _onednn_linear is not None, "has_onednn_products is true"
    if inputs.dtype == torch.bfloat16 and _HAS_AMX:
        inputs, weight = pad_to_tiles(inputs), pad_to_tiles(weight)
    return _onednn_linear(inputs, weight, bias, "none", [], "")


def pad_to_tiles(matrix: torch.Tensor) -> torch.Tensor:
    """Append columns of zeros until AMX's tiles hold whole rows: an even number up to 32, above that a multiple of 32.

    oneDNN 3.12 fills the last tile of a bf16 row with the beginning of the next row, and multiplies that by zeros: a
    NaN there makes this row's product NaN too (oneDNN's issue 5717, fixed after its release 3.13).
    """
    num_columns = matrix.shape[1]
    num_missing = num_columns % 2 if num_columns <= _TILE_COLUMNS else -num_columns % _TILE_COLUMNS
    return F.pad(matrix, (0, num_missing)) if num_missing else matrix


def compute_input_gradient(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute dx = d W [c, m] from the gradient d [c, n] of a layer's output and its weight W [n, m]."""
    return apply_linear(gradient, weight.t())


def compute_weight_gradient(gradient: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Compute dW = d^T x [n, m] from the gradient d [c, n] of a layer's output and its input x [c, m]."""
    if inputs.dtype == torch.bfloat16:
        # torch uses oneDNN here, which transposes the first operand into tiles padded with zeros: no row is read beyond
        # its end.
        return gradient.t() @ inputs
    if inputs.shape[1] < _NARROW:
        # (x^T d)^T: the wide matrix is the second operand.
        return apply_linear(inputs.t(), gradient.t()).t()
    # A contiguous copy of d^T first: it costs less than oneDNN loses by the strides.
    return apply_linear(gradient.t().contiguous(), inputs.t())
