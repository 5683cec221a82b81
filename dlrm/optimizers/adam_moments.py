"""Adam's running means of a group of parameters, shared by optimizers that torch does not have."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer


@dataclass(frozen=True)
class AdamMoments:
    """Running means of n parameters after this step's gradients have entered."""

    means: list[torch.Tensor]
    """m of each parameter, the state itself."""
    mean_corrections: list[float]
    """1 - beta1^t of each parameter."""
    denominators: tuple[torch.Tensor, ...]
    """sqrt(v_hat) + eps of each parameter."""


def update_moments(
    optimizer: Optimizer,
    group: dict[str, Any],
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    squared: list[torch.Tensor] | None = None,
) -> AdamMoments:
    """Move the running means of `parameters` by one step (Kingma & Ba 2015, algorithm 1), at step t:

    m = beta1 m + (1 - beta1) g,   m_hat = m / (1 - beta1^t)
    v = beta2 v + (1 - beta2) g^2, v_hat = v / (1 - beta2^t)

    squared: the g of v, if it differs from the g of m.
    """
    states = [_get_state(optimizer, parameter) for parameter in parameters]
    means = [state["exp_avg"] for state in states]
    beta1, _ = group["betas"]
    torch._foreach_lerp_(means, gradients, 1 - beta1)
    denominators = update_mean_squares(group, states, gradients if squared is None else squared)
    return AdamMoments(means, [1 - beta1 ** state["step"].item() for state in states], denominators)


def update_mean_squares(
    group: dict[str, Any], states: list[dict[str, torch.Tensor]], gradients: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Count a step, and move v of each parameter by it; return sqrt(v_hat) + eps of each."""
    mean_squares, steps = ([state[name] for state in states] for name in ("exp_avg_sq", "step"))
    _, beta2 = group["betas"]
    torch._foreach_add_(steps, 1)
    torch._foreach_mul_(mean_squares, beta2)
    torch._foreach_addcmul_(mean_squares, gradients, gradients, 1 - beta2)
    # sqrt(v_hat) = sqrt(v) / sqrt(1 - beta2^t)
    roots = torch._foreach_sqrt(mean_squares)
    torch._foreach_div_(roots, [(1 - beta2 ** step.item()) ** 0.5 for step in steps])
    torch._foreach_add_(roots, group["eps"])
    return roots


def make_moments(state: dict[str, torch.Tensor], parameter: torch.Tensor) -> None:
    """Put the running means of a parameter before its first step into its state."""
    # The step count t is on the host, as in torch's Adam, since every step reads it.
    state["step"] = torch.zeros((), dtype=torch.float32)
    state["exp_avg"] = torch.zeros_like(parameter)
    state["exp_avg_sq"] = torch.zeros_like(parameter)


def _get_state(optimizer: Optimizer, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    state = optimizer.state[parameter]
    if not state:
        make_moments(state, parameter)
    return state
