"""LAMB: Adam with a learning rate for each tensor in proportion to the tensor's norm."""

from typing import Any, ClassVar

import torch

from dlrm.optimizers.adam_moments import update_moments
from dlrm.optimizers.groupwise import GroupwiseOptimizer
from dlrm.optimizers.trust import compute_norms, scale_each, select_ratios


class Lamb(GroupwiseOptimizer):
    """LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2): w = w - lr ratio u, where u is Adam's bias-corrected
    update plus weight_decay w, and ratio = ||w|| / ||u||, or 1 where one of the norms is 0.

    The norm of w is used unchanged (phi is the identity). With ratio 1 this is Adam with decoupled weight decay; groups
    whose `is_trust_scaled` is false are trained like this.
    """

    SETTINGS: ClassVar[dict[str, Any]] = {**GroupwiseOptimizer.SETTINGS, "eps": 1e-6, "is_trust_scaled": True}

    def _step_group(self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        # u = m_hat / (sqrt(v_hat) + eps) + weight_decay w
        moments = update_moments(self, group, parameters, gradients)
        updates = list(torch._foreach_div(moments.means, moments.denominators))
        torch._foreach_div_(updates, moments.mean_corrections)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["is_trust_scaled"]:
            # ratio = ||w|| / ||u|| for each tensor; x / 0 is replaced by 1 in `select_ratios`.
            of_weights, of_updates = norms = compute_norms(parameters, updates)
            scale_each(updates, select_ratios(norms, of_weights / of_updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
