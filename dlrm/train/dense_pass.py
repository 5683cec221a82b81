"""The dense part, forward and backward, chunk by chunk."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.gradient_stats import Estimator, Share
from dlrm.train.batch import DeviceBatch
from dlrm.train.part_clock import PartClock


class Pooled(Protocol):
    """Pooled embeddings of this rank's share, and the way back for their gradient; see `sharding.embedding`."""

    @property
    def scale(self) -> float: ...

    def chunk(self, start: int, end: int) -> torch.Tensor: ...

    def set_gradient(self, start: int, end: int, gradient: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True)
class DensePass:
    """Activations exist for one chunk at a time; one that fits the cache is also several times faster."""

    clock: PartClock
    model: nn.Module
    estimator: Estimator
    """Decides on the chunks."""
    is_bf16: bool
    """Matrix products under bf16 autocast."""

    def __call__(
        self, batch: DeviceBatch, pooled: Pooled, share: Share, divisor: float, *, is_whole: bool
    ) -> torch.Tensor:
        """Weighted loss sum of this rank's share, as float64; not finite where any gradient is not.

        Leaves the dense gradients of the loss sum in the estimator's sums, and gives scale / divisor times the pooled
        ones back. divisor: what a sum over the samples of the global batch is divided by. is_whole: see the estimator.
        """
        to_scaled_mean = pooled.scale / divisor
        loss_sum = torch.zeros((), dtype=torch.float64, device=batch.labels.device)
        for start, end in self.estimator.chunks(share, batch.index, is_whole=is_whole):
            with self.clock.part("lookup"):
                chunk = pooled.chunk(start, end).requires_grad_()  # [c, F, D]
            with self.clock.part("dense"):
                loss_sum += self._loss(batch, start, end, chunk)
                gradient = chunk.grad
            if gradient is not None:  # there are tables
                with self.clock.part("give_back"):
                    loss_sum += pooled.set_gradient(start, end, gradient.mul_(to_scaled_mean))
        return loss_sum

    def _loss(self, batch: DeviceBatch, start: int, end: int, pooled: torch.Tensor) -> torch.Tensor:
        """Weighted loss sum of a chunk, whose backward pass it makes."""
        with torch.autocast(batch.labels.device.type, torch.bfloat16, enabled=self.is_bf16):
            logits = self.model(batch.dense[start:end], pooled)  # [c]
        labels = batch.labels[start:end]
        loss = F.binary_cross_entropy_with_logits(
            logits.to(labels.dtype), labels, weight=batch.weights[start:end], reduction="sum"
        )
        loss.backward()
        return loss.detach()
