"""A batch as the training step takes it: torch tensors on this rank's device."""

from dataclasses import dataclass

import torch

from dlrm.data.batches import Batch


@dataclass(frozen=True)
class DeviceBatch:
    """This rank's share of one global batch; rows of mask 0 fill a short one and have no ids, label or weight."""

    index: int
    """Of the global batch, counted from 0 through all epochs."""
    dense: torch.Tensor
    """[b, N] float32"""
    ids: torch.Tensor
    """[sum of lengths] int64, feature by feature, row by row"""
    lengths: torch.Tensor
    """[F * b] int32, ids of each bag, in the same order"""
    labels: torch.Tensor
    """[b] float32"""
    mask: torch.Tensor
    """[b] float32, which rows are valid"""
    weights: torch.Tensor
    """[b] float32, how much each row counts; the mask itself where all count the same"""
    num_valid: int
    """Valid rows of the GLOBAL batch."""


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Move a batch of numpy arrays to `device`."""
    bags = batch.bags
    arrays = (batch.dense, bags.values, bags.lengths.reshape(-1), batch.labels, batch.mask)
    dense, ids, lengths, labels, mask = (torch.from_numpy(array).to(device) for array in arrays)
    weights = mask if batch.weights is None else torch.from_numpy(batch.weights).to(device)
    return DeviceBatch(batch.index, dense, ids, lengths, labels, mask, weights, batch.num_valid)
