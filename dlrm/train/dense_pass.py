"""The forward and backward pass of the dense part over a rank's share of a batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import nn

from dlrm.gradient_stats.estimator import Estimator, Share
from dlrm.model.task_loss import LogLoss
from dlrm.preconditioners import Preconditioner
from dlrm.train.batch import DeviceBatch
from dlrm.train.profiler import PartClock
from sharding.embedding import PooledBatch


class ChunkPass(Protocol):
    """The forward and backward pass of one chunk."""

    def __call__(
        self, batch: DeviceBatch, pooled: PooledBatch, start: int, end: int, to_scaled_mean: float
    ) -> torch.Tensor:
        """Train on samples [start, end) of the share, and return their weighted loss sum: NaN where a gradient of
        pooled embeddings is not finite.

        Adds the dense gradient of the loss sum to the gradient buffer, and writes the gradient of the pooled embeddings
        back, times `to_scaled_mean`.
        """
        ...


@dataclass(frozen=True)
class DensePass:
    """The dense pass, chunk by chunk: gradient accumulation over micro-batches.

    Activations exist for one chunk at a time; a chunk that fits the cache is also several times faster.
    """

    run_chunk: ChunkPass
    estimator: Estimator
    """Cuts the share into spans, and takes what it needs of the gradient at the end of each."""
    chunk_size: int
    """c, samples of a chunk; the last one of a span may be short."""
    preconditioner: Preconditioner | None = None
    """Preconditioner that measures the first samples; None if absent."""
    label_smoothing: float = 0.0
    """Share of each label that is replaced by 1/2."""

    def __call__(
        self, batch: DeviceBatch, pooled: PooledBatch, share: Share, divisor: float, *, is_whole: bool
    ) -> torch.Tensor:
        """Train on this rank's share, and return its weighted loss sum as float64: not finite where a gradient is not.

        Leaves the dense gradient of the loss sum in the gradient buffer, and writes the gradient of the pooled
        embeddings back, times scale / divisor. divisor: what a sum over the samples of the global batch is divided by.
        is_whole: see `Estimator.begin_batch`.
        """
        if self.label_smoothing:
            batch = replace(batch, labels=(1 - self.label_smoothing) * batch.labels + self.label_smoothing / 2)
        loss_sum = torch.zeros((), dtype=torch.float64, device=batch.labels.device)
        measured = [] if self.preconditioner is None else self.preconditioner.begin_batch(share)
        span_start = 0
        for span in self.estimator.begin_batch(share, is_whole=is_whole):
            # Pooled embeddings arrive in the order of the samples.
            for start, end in _cut_chunks(span_start, span.end, self.chunk_size, measured):
                if self.preconditioner is not None:
                    self.preconditioner.set_measuring(any(first <= start < last for first, last in measured))
                loss_sum += self.run_chunk(batch, pooled, start, end, pooled.scale / divisor)
            span.at_end()
            span_start = span.end
        return loss_sum


def _cut_chunks(start: int, end: int, size: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Cut samples [start, end) into chunks of `size`, and those again where one of `ranges` begins or ends."""
    for chunk_start in range(start, end, size):
        chunk_end = min(chunk_start + size, end)
        marks = {mark for pair in ranges for mark in pair if chunk_start < mark < chunk_end}
        yield from pairwise([chunk_start, *sorted(marks), chunk_end])


@dataclass(frozen=True)
class EagerChunk:
    """The pass of a chunk as torch runs it, one operation after another."""

    clock: PartClock
    model: nn.Module
    is_bf16: bool
    """Whether matrix products are under bf16 autocast."""
    augment: "Augmentation | None" = None
    """Copies of the samples to train on; None: each once, as it is."""
    loss: "Loss" = field(default_factory=LogLoss)

    def __call__(
        self, batch: DeviceBatch, pooled: PooledBatch, start: int, end: int, to_scaled_mean: float
    ) -> torch.Tensor:
        with self.clock.part("lookup"):
            chunk = pooled.read_chunk(start, end).requires_grad_()  # [c, F, D]
        with self.clock.part("dense"):
            rows = ChunkRows(batch.dense[start:end], chunk, batch.labels[start:end], batch.weights[start:end])
            copies = [rows] if self.augment is None else self.augment(rows, batch, start)
            loss = torch.stack([copy.train(self.model, self.loss, is_bf16=self.is_bf16) for copy in copies]).sum()
            gradient = chunk.grad
        if gradient is None:  # there are no tables
            return loss
        with self.clock.part("give_back"):
            return loss + pooled.write_gradient(start, end, gradient.mul_(to_scaled_mean))


@dataclass(frozen=True)
class ChunkRows:
    """Samples of a chunk, as its pass reads them."""

    dense: torch.Tensor
    """[c, N]"""
    pooled: torch.Tensor
    """[c, F, D], the leaf that gets the gradient."""
    labels: torch.Tensor
    """[c], or [c, T] of T > 1 tasks"""
    weights: torch.Tensor
    """[c]"""

    def train(
        self, model: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], loss: "Loss", *, is_bf16: bool
    ) -> torch.Tensor:
        """Make the forward and backward pass, and return the weighted loss sum."""
        # Every weight is used once, so that a cache of converted ones would only be one more thing to keep.
        with torch.autocast(self.labels.device.type, torch.bfloat16, enabled=is_bf16, cache_enabled=False):
            logits = model(self.dense, self.pooled)  # as labels
        loss_sum = loss(logits.to(self.labels.dtype), self.labels, self.weights)
        loss_sum.backward()
        return loss_sum.detach()


class Loss(Protocol):
    """Loss of a chunk: see `dlrm.model.task_loss`."""

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the loss summed over samples with their weights [c]; logits and labels are [c] or [c, T]."""
        ...


class Augmentation(Protocol):
    """Batch augmentation: a sample counts once, and is trained on in several copies."""

    def __call__(self, rows: ChunkRows, batch: DeviceBatch, start: int) -> Iterable[ChunkRows]:
        """Yield the copies of a chunk one by one: each is trained on before the next is made.

        The weights of a sample's copies add up to its own, and their gradients add up in `rows.pooled`. start: first
        sample of the chunk in the share.
        """
        ...
