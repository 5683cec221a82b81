"""Rows of a table that is whole here: pooled, and their gradients summed. By the own operators, or by torch alone."""

from itertools import pairwise

import torch
from torch.nn import functional as F

from sharding.embedding import native_ops as native

BAGS_PER_PIECE = 1 << 16
"""Summed at a time by torch, which takes numbers of 8 bytes for every id."""


def is_native(weights: torch.Tensor) -> bool:
    """Whether the own operators take this table."""
    return weights.device.type == "cpu" and native.is_built()


def pool_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of each bag's rows of `weights` [R, C] into `out` [m, C].

    offsets: [m + 1] places in `ids`; by torch alone those of all ids.
    """
    if is_native(weights):
        native.pool(weights, ids, offsets, 0, out)
    else:
        out.copy_(F.embedding_bag(ids, weights, offsets, mode="sum", include_last_offset=True))


def sum_rows(ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, out: torch.Tensor) -> None:
    """Write for each row the sum of the gradients [m, C] of all bags that have it into `out` [R, C].

    offsets: [m + 1] places in `ids`, which are all in some bag.
    """
    if is_native(out):
        # Plain descent from zero, at rate -1.
        native.apply_plain_sgd(out.zero_(), ids, offsets, gradients, rate=-1.0)
        return
    # In float64: one row may have most of a batch, and torch adds them up one by one.
    sums = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    starts = range(0, len(gradients), BAGS_PER_PIECE)
    ends = torch.cat([offsets[:-1:BAGS_PER_PIECE], offsets[-1:]]).tolist()
    for start, (first, behind) in zip(starts, pairwise(ends), strict=True):
        piece = slice(start, start + BAGS_PER_PIECE)
        lengths = offsets[start : start + BAGS_PER_PIECE + 1].diff()
        of_ids = gradients[piece].double().repeat_interleave(lengths, dim=0, output_size=behind - first)
        sums.index_add_(0, ids[first:behind], of_ids)
    out.copy_(sums)
