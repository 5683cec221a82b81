"""Linear layers, and the ReLU behind them in place."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlrm.model.products import has_own_products, input_gradient, linear, weight_gradient


class Linear(nn.Linear):
    """`nn.Linear`, and where asked a ReLU behind it; both obey autocast as torch's own do."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool = True, is_activated: bool = False) -> None:
        super().__init__(num_inputs, num_outputs, bias=bias)
        self.is_activated = is_activated

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[c, num_inputs] -> [c, num_outputs]"""
        device = input.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.weight.dtype
        if input.dim() == 2 and has_own_products(input.device, dtype):
            return _OwnLinear.apply(input, self.weight, self.bias, dtype, self.is_activated)
        outputs = F.linear(input, self.weight, self.bias)
        return torch.relu(outputs) if self.is_activated else outputs


class _OwnLinear(torch.autograd.Function):
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
        outputs = linear(rounded, rounded_weight, None if bias is None else bias.to(dtype))
        if is_activated:
            # Not as part of the product: oneDNN's ReLU makes 0 of what is no number, and nobody would learn of it.
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
        of_inputs, of_weight, of_bias, *_ = ctx.needs_input_grad
        return (
            input_gradient(gradient, weight).to(input_dtype) if of_inputs else None,
            weight_gradient(gradient, inputs).to(weight_dtype) if of_weight else None,
            gradient.sum(dim=0, dtype=weight_dtype) if of_bias else None,
            None,
            None,
        )
