"""The dot products of all pairs of feature vectors."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from dlrm.model.vectors import joined
from dlrm.native import fits_own_fp32


class Interaction(nn.Module):
    """What the top of a DLRM gets: the bottom's output, and behind it the products of all V (V - 1) / 2 pairs.

    Without a bottom it gets the pooled embeddings instead, all of them. Pairs come in the order (1, 0), (2, 0), (2, 1),
    …, the bottom's output being vector 0.
    """

    lower_triangle: torch.Tensor

    def __init__(self, num_vectors: int) -> None:
        """num_vectors: V."""
        super().__init__()
        row, column = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.register_buffer("lower_triangle", row * num_vectors + column, persistent=False)

    def forward(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        """bottom [c, D], pooled [c, F, D] -> [c, beside + V (V - 1) / 2], in the number format of the bottom."""
        if pooled.numel() > 0 and fits_own_fp32(pooled):
            return _OwnInteraction.apply(_nothing_like(pooled) if bottom is None else bottom, pooled)
        return self._in_plain_torch(bottom, pooled)

    def _in_plain_torch(self, bottom: torch.Tensor | None, pooled: torch.Tensor) -> torch.Tensor:
        vectors = joined(bottom, pooled)  # [c, V, D]
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # [c, V^2]
        pairs = products.index_select(1, self.lower_triangle)  # [c, V (V - 1) / 2]
        beside = pooled.flatten(1) if bottom is None else bottom
        return torch.cat([beside, pairs], dim=1)


def _nothing_like(pooled: torch.Tensor) -> torch.Tensor:
    """[c, 0], of the number format that a bottom would have."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else pooled.dtype
    return pooled.new_empty(len(pooled), 0, dtype=dtype)


class _OwnInteraction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bottom: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(bottom, pooled)
        return torch.ops.dlrm_dense.interact(bottom, pooled)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.dlrm_dense.interact_backward(*grad_outputs, *ctx.saved_tensors)
