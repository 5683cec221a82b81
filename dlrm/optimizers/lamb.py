"""LAMB: Adam with a learning rate for each tensor in proportion to the tensor's norm."""

# torch has no public names for the foreach operations that its own optimizers use.
# pyright: reportPrivateImportUsage=false

from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from dlrm.optimizers.trust import TrustScaled, compute_norms, select_ratios


class Lamb(TrustScaled):
    """LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2): w = w - lr ratio u, where u is Adam's bias-corrected
    update plus weight_decay w, and ratio = ||w|| / ||u||, or 1 where one of the norms is 0.

    The norm of w is used unchanged (phi is the identity). With ratio 1 this is Adam with decoupled weight decay; groups
    whose `is_trust_scaled` is false are trained that way.
    """

    def __init__(
        self,
        params: ParamsT,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        is_trust_scaled: bool = True,
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "is_trust_scaled": is_trust_scaled,
        }
        super().__init__(params, settings)

    def _step_group(self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        updates = self._compute_adam_updates(group, parameters, gradients)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["is_trust_scaled"]:
            # ratio = ||w|| / ||u|| for each tensor; x / 0 is replaced by 1 in `select_ratios`.
            of_weights, of_updates = compute_norms(parameters), compute_norms(updates)
            torch._foreach_mul_(updates, select_ratios(of_weights, of_updates, of_weights / of_updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _compute_adam_updates(
        self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Compute u = m_hat / (sqrt(v_hat) + eps) for each parameter (Kingma & Ba 2015, algorithm 1), at step t:

        m = beta1 m + (1 - beta1) g,   m_hat = m / (1 - beta1^t)
        v = beta2 v + (1 - beta2) g^2, v_hat = v / (1 - beta2^t)
        """
        states = [self._get_state(parameter) for parameter in parameters]
        means, mean_squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(mean_squares, beta2)
        torch._foreach_addcmul_(mean_squares, gradients, gradients, 1 - beta2)
        # sqrt(v_hat) = sqrt(v) / sqrt(1 - beta2^t)
        roots = torch._foreach_sqrt(mean_squares)
        torch._foreach_div_(roots, [(1 - beta2 ** step.item()) ** 0.5 for step in steps])
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(means, roots)
        torch._foreach_div_(updates, [1 - beta1 ** step.item() for step in steps])
        return updates

    def _get_state(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.state[parameter]
        if not state:
            # The step count t is on the host, as in torch's Adam, since every step reads it.
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state
