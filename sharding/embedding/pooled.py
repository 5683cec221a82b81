"""Pooled embeddings of this rank's share of a batch, chunk by chunk, and the way back for their gradients."""

from dataclasses import dataclass

import torch

from sharding.embedding.transport import PooledShare


@dataclass(frozen=True)
class PooledBatch:
    """Of all features, whichever way their tables are reached."""

    shares: list[PooledShare]
    scale: float
    """What the gradient travels at: `set_gradient` takes so many times d(mean loss) / d(pooled)."""
    dtype: torch.dtype
    """Of the exchange."""
    buffer: "ChunkBuffer"
    lengths: torch.Tensor | None
    """[F, b] int32, ids of each bag, where sums are made means; an empty bag gives zeros."""

    def read_chunk(self, start: int, end: int) -> torch.Tensor:
        """[c, F, D], good until the next chunk is asked for; [c, 0, 0] where there are no features."""
        chunk = self.buffer.of(end - start)
        for share in self.shares:
            share.read_chunk(start, end, chunk)
        if self.lengths is not None:
            chunk /= self._num_ids(start, end)
        return chunk

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> torch.Tensor:
        """gradient: [c, F, D], `scale` times the true one, of the samples from `start` to `end`.

        Returns 0, or NaN where some of it is not finite, or too large for the exchange's number format.
        """
        if self.lengths is not None:
            gradient = gradient / self._num_ids(start, end)
        gradient = gradient.to(self.dtype)
        for share in self.shares:
            share.write_gradient(start, end, gradient)
        return 0.0 * gradient.sum(dtype=torch.float32)

    def apply_update(self) -> None:
        """Of every table, when all chunks have had their gradient, and all ranks have agreed on that. Collective."""
        for share in self.shares:
            share.apply_update()

    def discard(self) -> None:
        """Instead of an update, where a step was not sound."""
        for share in self.shares:
            share.discard()

    def _num_ids(self, start: int, end: int) -> torch.Tensor:
        """[c, F, 1] What a sum over a bag is divided by; that of an empty one is zero and stays it."""
        assert self.lengths is not None, "the caller wants means"
        return self.lengths[:, start:end].t().clamp(min=1).unsqueeze(2)


class ChunkBuffer:
    """Room for one chunk, kept from batch to batch: new memory is slow to touch."""

    def __init__(self, num_features: int, dim: int, device: torch.device) -> None:
        self._buffer = torch.empty(0, num_features, dim, device=device)

    def of(self, num_samples: int) -> torch.Tensor:
        """[c, F, D], whatever it holds; the same memory every time."""
        if len(self._buffer) < num_samples:
            self._buffer = self._buffer.new_empty(num_samples, *self._buffer.shape[1:])
        return self._buffer[:num_samples].detach()
