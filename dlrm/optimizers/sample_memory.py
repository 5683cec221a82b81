"""Memory in samples: means of gradients forget by samples, not by steps, where the batch grows."""

from typing import Any

import torch
from torch.optim import Optimizer

from dlrm.optimizers.groupwise import AveragingOptimizer


class SampleMemory:
    """Changes the shares that an optimizer keeps of its means, so that their half-lives are constant in samples.

    A step of k times the samples of the run's first batch keeps beta^k (Marek et al. 2025, arXiv 2507.07101). With
    changing shares, the bias of a mean that begins at 0 is the product of all of them, beta^(k_1 + k_2 + ..): so the
    state `step` counts first batches, and a step adds k to it. During a step it counts batches of the present size,
    t = (k_1 + k_2 + ..) / k, since the optimizer adds 1 and corrects by 1 - (beta^k)^t.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        """Register hooks on the steps of `optimizer`, whose groups have `betas`."""
        self.growth = 1.0
        """k of the next step."""
        self._settings: list[dict[str, Any]] = []
        """Settings of each group for the first batch, while a step has others."""
        optimizer.register_step_pre_hook(self._begin_step)
        optimizer.register_step_post_hook(self._end_step)

    def _begin_step(self, optimizer: Optimizer, *_: object) -> None:
        if self.growth == 1.0:
            return
        self._settings = [dict(group) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            beta1, beta2 = group["betas"]
            kept = beta1 if isinstance(optimizer, AveragingOptimizer) else beta1**self.growth
            group["betas"] = kept, beta2**self.growth
            if "shampoo_beta" in group:
                group["shampoo_beta"] **= self.growth
        _scale_steps(optimizer, 1 / self.growth)

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        if self.growth == 1.0:
            return
        for group, settings in zip(optimizer.param_groups, self._settings, strict=True):
            group.update(settings)
        _scale_steps(optimizer, self.growth)


def _scale_steps(optimizer: Optimizer, factor: float) -> None:
    steps = [state["step"] for state in optimizer.state.values()]
    if steps:
        torch._foreach_mul_(steps, factor)
