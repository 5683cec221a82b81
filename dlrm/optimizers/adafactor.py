"""Adafactor: the mean square of a matrix is kept as one number for each row and each column."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from dlrm.optimizers.groupwise import GroupwiseOptimizer
from dlrm.optimizers.trust import scale_each

SQUARE_FLOOR = 1e-30
"""Value added to every squared gradient."""
MAX_BETA2 = 0.999
"""Largest share of a mean square that is kept from step to step."""


class Adafactor(GroupwiseOptimizer):
    """Adafactor (Shazeer & Stern 2018, arXiv 1804.04235, algorithm 4), as Zhai et al. 2022 (arXiv 2106.04560, section
    3.4) change it. At step t, for a matrix with gradient G and b = min(0.999, 1 - t^-0.8):

    R = b R + (1 - b) mean over columns of (G^2 + 1e-30),   C = b C + (1 - b) mean over rows of (G^2 + 1e-30)
    U = G / sqrt(R C / mean R),   m = beta1 m + (1 - beta1) U / max(1, RMS(U)),   W = (1 - lr weight_decay) W - lr m

    Vectors have V = b V + (1 - b) (g^2 + 1e-30) in the place of R C / mean R. The changes: the mean m, the limit of
    0.999, and a rate that follows neither RMS(W) nor 1 / sqrt(t). As in the authors' code, m is a mean of updates,
    without correction of its start at 0: the first ten steps or so are short. RMS(U) is limited as in 2018.
    """

    SETTINGS: ClassVar[dict[str, Any]] = {"beta1": 0.9, "weight_decay": 0.0}

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        states = [self._get_state(parameter) for parameter in parameters]
        torch._foreach_add_([state["step"] for state in states], 1)
        updates = [_normalise(gradient, state) for gradient, state in zip(gradients, states, strict=True)]
        sizes = torch._foreach_norm(updates)
        torch._foreach_div_(sizes, [update.numel() ** 0.5 for update in updates])
        scale_each(updates, torch.stack(sizes).clamp_(min=1.0).reciprocal_())
        means = [state["exp_avg"] for state in states]
        torch._foreach_lerp_(means, updates, 1 - group["beta1"])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, means, alpha=-group["lr"])

    def _get_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            # On the host, as in torch's Adam, since every step reads it.
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            if parameter.ndim == 2:
                state["row_sq"], state["column_sq"] = (
                    torch.zeros_like(parameter[:, :1]),
                    torch.zeros_like(parameter[:1]),
                )
            else:
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _normalise(gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Take a gradient into the mean squares of its parameter, and return it divided by their root."""
    share = max(state["step"].item() ** -0.8, 1 - MAX_BETA2)
    square = gradient.square().add_(SQUARE_FLOOR)
    if gradient.ndim != 2:
        return state["exp_avg_sq"].lerp_(square, share).rsqrt().mul_(gradient)
    rows = state["row_sq"].lerp_(square.mean(dim=1, keepdim=True), share)  # [n, 1]
    columns = state["column_sq"].lerp_(square.mean(dim=0, keepdim=True), share)  # [1, m]
    # One root after the other: the product of two small squares would be 0 in fp32.
    return (rows / rows.mean()).rsqrt_() * gradient * columns.rsqrt()
