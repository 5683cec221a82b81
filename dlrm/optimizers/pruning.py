"""Magnitude pruning during training: a mask holds the smallest elements of the dense matrices at zero."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dlrm.model.quantized import choose_kept
from dlrm.optimizers.groupwise import AveragingOptimizer
from dlrm.optimizers.weight_average import WeightAverage


class Pruning:
    """Masks m of the matrices W, the same on every rank: a step has the gradient m g, and ends with W = m W.

    Whatever moves whole matrices, such as momentum in another basis, therefore moves no pruned element, nor does its
    gradient count in a norm. An average of the weights is masked with them. A pruned element is the smallest ever
    after, so that a greater share keeps it pruned.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, average: WeightAverage | None) -> None:
        """Begin with nothing pruned, and mask the weights after all steps of `optimizer` from now on."""
        self._optimizer = optimizer
        self._average = average
        self._matrices = {name: weight for name, weight in model.named_parameters() if name.endswith(".weight")}
        self._masks = {name: torch.ones_like(weight) for name, weight in self._matrices.items()}
        self._num_pruned = torch.zeros((), dtype=torch.int64)
        optimizer.register_step_post_hook(self._mask_weights)

    @torch.no_grad()
    def prune(self, share: float) -> None:
        """Prune a share of all elements by their magnitude now; nothing if as many are pruned already."""
        num_pruned = round(share * sum(matrix.numel() for matrix in self._matrices.values()))
        if num_pruned <= int(self._num_pruned):
            return
        for name, is_kept in choose_kept(self._matrices, share).items():
            self._masks[name].copy_(is_kept)
        self._num_pruned.fill_(num_pruned)
        self._mask_weights()
        if self._average is not None:
            self._mask(self._average.dense)

    def mask_gradients(self) -> None:
        """Set the gradients of pruned elements to 0, before anything takes a norm or a product of the gradient."""
        self._mask({name: matrix.grad for name, matrix in self._matrices.items() if matrix.grad is not None})

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; tensors are not copied, and may be loaded in place."""
        return {"masks": self._masks, "num_pruned": self._num_pruned}

    @torch.no_grad()
    def _mask_weights(self, *_: object) -> None:
        self._mask(self._matrices)
        if isinstance(self._optimizer, AveragingOptimizer):
            for copies in zip(*map(self._optimizer.list_copies, self._matrices.values()), strict=True):
                self._mask(dict(zip(self._matrices, copies, strict=True)))

    def _mask(self, tensors: Mapping[str, torch.Tensor]) -> None:
        named = {name: tensors[name] for name in self._masks if name in tensors}
        torch._foreach_mul_(list(named.values()), [self._masks[name] for name in named])
