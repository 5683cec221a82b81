"""Schedule-free AdamW: an average of the weights in the place of a falling learning rate."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from dlrm.optimizers.adam_moments import update_mean_squares
from dlrm.optimizers.groupwise import AveragingOptimizer
from sharding.embedding import swap_tensors


class ScheduleFree(AveragingOptimizer):
    """Schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682, algorithm 1), at step t with the gradient g at y:

    z = z - lr (g / (sqrt(v_hat) + eps) + weight_decay y),   x = x + c (z - x),   c = a lr^2 / (sum of a lr^2 so far),
    y = (1 - beta1) z + beta1 x

    with Adam's v. Training is at y, the parameters; x is the model that is evaluated and kept. lr rises in a warm-up
    and never falls: steps of the warm-up count less in x. a is 1 in the algorithm, whose batches have one size; where
    the batch grows it is `average_weight`. The algorithm multiplies lr by sqrt(1 - beta2^t), also in c;
    here, as in the authors' code, that is part of v_hat alone. x is kept beside z, so that y and x are restored without
    rounding.
    """

    def __init__(self, params: ParamsT, *, lr: float, **settings: Any) -> None:
        super().__init__(params, lr=lr, **settings)
        self.register_load_state_dict_post_hook(_restore_weights)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        self._swap()
        yield
        self._swap()

    def list_copies(self, parameter: Tensor) -> list[Tensor]:
        return [self.state[parameter][name] for name in ("z", "x")] if parameter in self.state else []

    @torch.no_grad()
    def restart(self) -> None:
        # v stays as it is; z, y and x are the same, and no step has weight in x yet. Otherwise the steps of earlier
        # runs, whose number grows with each, would have nearly all weight in x.
        for parameter, state in self.state.items():
            parameter.copy_(state["x"])
            state["z"].copy_(state["x"])
            state["squared_rates"].zero_()

    def list_averages(self, named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        return {
            name: self.state[parameter]["x"] if parameter in self.state else parameter.detach()
            for name, parameter in named_parameters
        }

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        rate, (beta1, _) = group["lr"], group["betas"]
        states = [self._get_state(parameter) for parameter in parameters]
        z, x, sums = ([state[name] for state in states] for name in ("z", "x", "squared_rates"))
        updates = list(torch._foreach_div(gradients, update_mean_squares(group, states, gradients)))
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_add_(z, updates, alpha=-rate)
        if rate > 0:
            weight = self.average_weight * rate**2
            torch._foreach_add_(sums, weight)
            torch._foreach_lerp_(x, z, [(weight / total).item() for total in sums])
        _interpolate(parameters, z, x, beta1)

    def _get_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["z"] = parameter.clone()
            state["x"] = parameter.clone()
            # On the host, as the step count: every step reads it.
            state["squared_rates"] = torch.zeros((), dtype=parameter.dtype)
        return state

    def _swap(self) -> None:
        trained = list(self.state)
        swap_tensors([self.state[parameter]["x"] for parameter in trained], trained)


def _interpolate(parameters: list[Tensor], z: list[Tensor], x: list[Tensor], beta1: float) -> None:
    """Set parameters to y = (1 - beta1) z + beta1 x."""
    torch._foreach_copy_(parameters, torch._foreach_lerp(z, x, beta1))


@torch.no_grad()
def _restore_weights(optimizer: Optimizer) -> None:
    """Set the parameters to y of the loaded state, and bring its sums, which torch moves, to the host."""
    for state in optimizer.state.values():
        state["squared_rates"] = state["squared_rates"].cpu()
    for group in optimizer.param_groups:
        states = {
            parameter: optimizer.state[parameter] for parameter in group["params"] if parameter in optimizer.state
        }
        z, x = ([state[name] for state in states.values()] for name in ("z", "x"))
        if states:
            _interpolate(list(states), z, x, group["betas"][0])
