"""Operations on a table that is whole on this rank: by the native operators, or by torch only."""

from itertools import pairwise

import torch
from torch.nn import functional as F

from sharding.embedding import native_ops

BAGS_PER_BLOCK = 1 << 16
"""Bags whose gradients torch sums at a time: it makes D float64 numbers for each of their ids."""


def is_native(weights: torch.Tensor) -> bool:
    """Whether the native operators work on this table."""
    return weights.device.type == "cpu" and native_ops.is_built()


def pool_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of each bag's rows of `weights` [R, C] into `out` [m, C].

    offsets: [m + 1] indices into `ids`; torch needs them to begin with the first id and end with the last one.
    """
    if is_native(weights):
        native_ops.pool(weights, ids, offsets, 0, out)
    else:
        out.copy_(F.embedding_bag(ids, weights, offsets, mode="sum", include_last_offset=True))


def sum_gradients_by_row(ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, out: torch.Tensor) -> None:
    """Write, for each row of `out` [R, C], the sum of the gradients [m, C] of all bags that name it.

    offsets: [m + 1] indices into `ids`, from the first id to the last one.
    """
    if is_native(out):
        # One step of gradient descent from zero at learning rate -1: 0 - (-1) sum of gradients.
        native_ops.apply_plain_sgd(out.zero_(), ids, offsets, gradients, learning_rate=-1.0)
        return
    # In float64: most bags of a batch may name the same row, and `index_add_` adds them one by one. Bags are taken in
    # blocks, since their gradients are repeated for every id; the ids of a block are those between two bounds.
    sums = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    first_bags = range(0, len(gradients), BAGS_PER_BLOCK)
    id_bounds = [0, len(ids)]
    if len(gradients) > BAGS_PER_BLOCK:
        # On a GPU this waits for all of its work.
        id_bounds = torch.cat([offsets[:-1:BAGS_PER_BLOCK], offsets[-1:]]).tolist()
    for first_bag, (start_id, end_id) in zip(first_bags, pairwise(id_bounds), strict=True):
        lengths = offsets[first_bag : first_bag + BAGS_PER_BLOCK + 1].diff()
        by_bag = gradients[first_bag : first_bag + BAGS_PER_BLOCK].double()
        by_id = by_bag.repeat_interleave(lengths, dim=0, output_size=end_id - start_id)
        sums.index_add_(0, ids[start_id:end_id], by_id)
    out.copy_(sums)
