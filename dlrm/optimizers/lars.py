"""LARS: SGD with momentum and a learning rate for each tensor in proportion to the tensor's norm."""

from typing import Any, ClassVar

import torch

from dlrm.optimizers.groupwise import GroupwiseOptimizer
from dlrm.optimizers.trust import compute_norms, scale_each, select_ratios


class Lars(GroupwiseOptimizer):
    """LARS (You et al. 2017, arXiv 1708.03888): v = momentum v + ratio (g + weight_decay w), w = w - lr v, where ratio
    = trust_coefficient ||w|| / (||g|| + weight_decay ||w||), or 1 where ||w|| or ||g|| is 0.

    The paper multiplies lr into v; here lr is outside of v, as in torch's SGD, so that a falling rate takes effect at
    once. With ratio 1 this is SGD with momentum; groups whose `is_trust_scaled` is false are trained like this.
    """

    SETTINGS: ClassVar[dict[str, Any]] = {
        "momentum": 0.9,
        "weight_decay": 0.0,
        "trust_coefficient": 0.001,
        "is_trust_scaled": True,
    }
    batch_fraction: float = 1.0
    """Rows of the batch divided by the rows of a full one; the ratio is multiplied by it. The ratio gives every
    addition to v about the same length, trust_coefficient ||w||, so that without this factor a few rows would move the
    weights as far as a full batch."""

    def _step_group(self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        decay = group["weight_decay"]
        velocities = [self._get_velocity(parameter) for parameter in parameters]
        # g + decay w
        pushes = list(torch._foreach_add(gradients, parameters, alpha=decay))
        if group["is_trust_scaled"]:
            of_weights, of_gradients = norms = compute_norms(parameters, gradients)
            coefficient = self.batch_fraction * group["trust_coefficient"]
            # The norms of g and decay w are added, as in the paper, not the norm of their sum.
            ratio = coefficient * of_weights / (of_gradients + decay * of_weights)
            scale_each(pushes, select_ratios(norms, ratio))
        # v = momentum v + ratio (g + decay w), w = w - lr v
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, pushes)
        torch._foreach_add_(parameters, velocities, alpha=-group["lr"])

    def _get_velocity(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]
