"""Operations on a table that is whole on this rank: by the own operators, or by torch alone."""

from itertools import pairwise

import torch
from torch.nn import functional as F

from sharding.embedding import native_ops

BAGS_PER_PIECE = 1 << 16
"""Bags whose gradients torch sums at a time; it makes float64 numbers of D columns for every id of them."""


def is_native(weights: torch.Tensor) -> bool:
    """Whether the own operators take this table."""
    return weights.device.type == "cpu" and native_ops.is_built()


def pool_rows(weights: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum of each bag's rows of `weights` [R, C] into `out` [m, C].

    offsets: [m + 1] places in `ids`; torch needs them to begin with the first id and end with the last one.
    """
    if is_native(weights):
        native_ops.pool(weights, ids, offsets, 0, out)
    else:
        out.copy_(F.embedding_bag(ids, weights, offsets, mode="sum", include_last_offset=True))


def sum_gradients_by_row(ids: torch.Tensor, offsets: torch.Tensor, gradients: torch.Tensor, out: torch.Tensor) -> None:
    """Write for each row of a table the sum of the gradients [m, C] of all bags that name it into `out` [R, C].

    offsets: [m + 1] places in `ids`, from the first id to the last one.
    """
    if is_native(out):
        # A step of plain descent from zero at learning rate -1 adds the gradients up.
        native_ops.apply_plain_sgd(out.zero_(), ids, offsets, gradients, learning_rate=-1.0)
        return
    # In float64: one row may be named by most of a batch, and `index_add_` adds one by one.
    sums = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    first_bags = range(0, len(gradients), BAGS_PER_PIECE)
    bounds = torch.cat([offsets[:-1:BAGS_PER_PIECE], offsets[-1:]]).tolist()
    for first_bag, (start, end) in zip(first_bags, pairwise(bounds), strict=True):
        lengths = offsets[first_bag : first_bag + BAGS_PER_PIECE + 1].diff()
        of_bags = gradients[first_bag : first_bag + BAGS_PER_PIECE].double()
        of_ids = of_bags.repeat_interleave(lengths, dim=0, output_size=end - start)
        sums.index_add_(0, ids[start:end], of_ids)
    out.copy_(sums)
