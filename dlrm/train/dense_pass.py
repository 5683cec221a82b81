"""The forward and backward pass of the dense part over a rank's share of a batch."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.gradient_stats.estimator import Estimator, Share
from dlrm.train.batch import DeviceBatch
from dlrm.train.profiler import PartClock
from sharding.embedding import PooledBatch


@dataclass(frozen=True)
class DensePass:
    """The forward and backward pass of the dense part, chunk by chunk: gradient accumulation over micro-batches.

    Activations exist for one chunk at a time; a chunk that fits the cache is also several times faster.
    """

    clock: PartClock
    model: nn.Module
    estimator: Estimator
    """Cuts the share into spans, and takes what it needs of the gradient at the end of each."""
    chunk_size: int
    """c, samples of a chunk; the last one of a span may be short."""
    is_bf16: bool
    """Whether matrix products are under bf16 autocast."""

    def __call__(
        self, batch: DeviceBatch, pooled: PooledBatch, share: Share, divisor: float, *, is_whole: bool
    ) -> torch.Tensor:
        """Train on this rank's share, and return its weighted loss sum as float64: not finite where a gradient is not.

        Leaves the dense gradient of the loss sum in the gradient buffer, and writes the gradient of the pooled
        embeddings back, times scale / divisor. divisor: what a sum over the samples of the global batch is divided by.
        is_whole: see `Estimator.begin_batch`.
        """
        to_scaled_mean = pooled.scale / divisor
        loss_sum = torch.zeros((), dtype=torch.float64, device=batch.labels.device)
        span_start = 0
        for span in self.estimator.begin_batch(share, is_whole=is_whole):
            # Pooled embeddings arrive in the order of the samples.
            for start in range(span_start, span.end, self.chunk_size):
                end = min(start + self.chunk_size, span.end)
                with self.clock.part("lookup"):
                    chunk = pooled.read_chunk(start, end).requires_grad_()  # [c, F, D]
                with self.clock.part("dense"):
                    loss_sum += self._backward(batch, start, end, chunk)
                    gradient = chunk.grad
                if gradient is not None:  # there are tables
                    with self.clock.part("give_back"):
                        loss_sum += pooled.write_gradient(start, end, gradient.mul_(to_scaled_mean))
            span.at_end()
            span_start = span.end
        return loss_sum

    def _backward(self, batch: DeviceBatch, start: int, end: int, pooled: torch.Tensor) -> torch.Tensor:
        """Make the forward and backward pass of samples [start, end), and return their weighted loss sum."""
        with torch.autocast(batch.labels.device.type, torch.bfloat16, enabled=self.is_bf16):
            logits = self.model(batch.dense[start:end], pooled)  # [c]
        labels = batch.labels[start:end]
        loss = F.binary_cross_entropy_with_logits(
            logits.to(labels.dtype), labels, weight=batch.weights[start:end], reduction="sum"
        )
        loss.backward()
        return loss.detach()
