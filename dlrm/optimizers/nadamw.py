"""NAdamW: AdamW with Nesterov momentum."""

from typing import Any

import torch

from dlrm.optimizers.adam_moments import update_moments
from dlrm.optimizers.groupwise import GroupwiseOptimizer


class NAdamW(GroupwiseOptimizer):
    """NAdamW (Dozat 2016 with the decoupled decay of Loshchilov & Hutter 2019), at step t:

    w = (1 - lr weight_decay) w - lr u,   u = (beta1 m + (1 - beta1) g) / (1 - beta1^t) / (sqrt(v_hat) + eps)

    with Adam's m and v, which this step's g has entered already: g counts once more, as if m had been moved one step
    ahead. This is the form of Choi et al. 2019 (arXiv 1910.05446, table 1), which AlgoPerf's baseline is, so that its
    settings can be taken over. Dozat divides m by 1 - beta1^(t+1) instead, which matters in the first few steps alone;
    his schedule of beta1, which torch's NAdam calls momentum_decay (psi), is left out: it would make beta1 depend on
    the number of the step, and so on the batch.
    """

    def _step_group(self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        beta1, _ = group["betas"]
        moments = update_moments(self, group, parameters, gradients)
        # beta1 m + (1 - beta1) g
        updates = torch._foreach_mul(moments.means, beta1)
        torch._foreach_add_(updates, gradients, alpha=1 - beta1)
        torch._foreach_div_(updates, moments.denominators)
        torch._foreach_div_(updates, moments.mean_corrections)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
