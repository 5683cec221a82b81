"""Rows of a table that is whole here: pooled, and their gradients summed. By the own operators, or by torch alone."""

import torch
from torch.nn import functional as F

from sharding.tables import native


def pool_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of each bag's rows of `weights` [R, C] into `out` [m, C]. offsets: [m + 1] places in `ids`."""
    if _is_native(weights):
        native.pool(weights, ids, offsets, 0, out)
        return
    first, behind = offsets[0].item(), offsets[-1].item()
    out.copy_(F.embedding_bag(ids[first:behind], weights, offsets - first, mode="sum", include_last_offset=True))


def sum_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """[R, C] For each row of `weights` the sum of the gradients [m, C] of all bags that have it."""
    if _is_native(weights):
        sums = torch.zeros_like(weights)
        # Plain descent from zero, at rate -1.
        native.descend(sums, ids, offsets, gradients, rate=-1.0)
        return sums
    first, behind = offsets[0].item(), offsets[-1].item()
    of_ids = gradients.double().repeat_interleave(offsets.diff(), dim=0)
    # In float64: one row may have most of a batch, and torch adds them up one by one.
    sums = torch.zeros(weights.shape, dtype=torch.float64, device=weights.device)
    return sums.index_add_(0, ids[first:behind], of_ids).to(weights.dtype)


def _is_native(weights: torch.Tensor) -> bool:
    return weights.device.type == "cpu" and native.is_built()
