"""Pooled embeddings on their way to the dense part, and their gradient on its way back, in the same memory."""

import torch


class PooledBlock:
    """Pooled embeddings of this rank's share of a batch; chunk by chunk their gradient takes their place.

    Nothing that the tables' backward pass keeps has its values, so that there is one block and not two. It is
    [b, F * D], in the order in which the exchange delivers features; `chunk` and `set_gradient` speak in the caller's
    order. The reordering is done a chunk at a time, where it stays in cache.
    """

    def __init__(
        self,
        pooled: torch.Tensor,
        num_features: int,
        *,
        scale: float = 1.0,
        order: torch.Tensor | None = None,
        lengths: torch.Tensor | None = None,
    ) -> None:
        """order: places of the caller's features in `pooled`, None where they are as there. lengths: [F, b] int32,
        ids of each bag, where `pooled` has sums and the caller is to have means; an empty bag gives zeros."""
        self.pooled = pooled
        self.scale = scale
        """What the gradient travels at: `set_gradient` takes so many times d(mean loss) / d(pooled)."""
        self._num_features = num_features
        self._order = order
        self._lengths = lengths

    def chunk(self, start: int, end: int) -> torch.Tensor:
        """[c, F, D], detached; [c, 0, 0] where there are no features. Good until its gradient is set."""
        if not self._num_features:
            return self.pooled.new_empty(end - start, 0, 0)
        chunk = self._rows(start, end)
        if self._order is not None:
            chunk = chunk.index_select(1, self._order)
        return chunk if self._lengths is None else chunk / self._num_ids(start, end)

    def set_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """gradient: [c, F, D], `scale` times the true one, of the samples from `start` to `end`."""
        if not self._num_features:
            return
        if self._lengths is not None:
            gradient = gradient / self._num_ids(start, end)
        if self._order is None:
            self._rows(start, end).copy_(gradient)
        else:
            self._rows(start, end).index_copy_(1, self._order, gradient)

    def _rows(self, start: int, end: int) -> torch.Tensor:
        """[c, F, D] in the delivered order, not copied."""
        return self.pooled.detach()[start:end].view(end - start, self._num_features, -1)

    def _num_ids(self, start: int, end: int) -> torch.Tensor:
        """[c, F, 1] What a sum over a bag is divided by; that of an empty one is zero and stays it."""
        assert self._lengths is not None, "the caller wants means"
        return self._lengths[:, start:end].t().clamp(min=1).unsqueeze(2)
