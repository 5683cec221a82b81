"""A batch as the training step takes it: torch tensors on this rank's device."""

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from dlrm.data.batches import Batch
from dlrm.data.order import BlockHalves


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
    halves: BlockHalves | None = None
    """How the GLOBAL batch draws on the blocks of the data; see `dlrm.data.batches.Batch`."""


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Move a batch of numpy arrays to `device`."""
    bags = batch.ids
    arrays = (batch.dense, bags.values, bags.lengths.reshape(-1), batch.labels, batch.mask)
    dense, ids, lengths, labels, mask = (_moved(array, device) for array in arrays)
    weights = mask if batch.weights is None else _moved(batch.weights, device)
    return DeviceBatch(batch.index, dense, ids, lengths, labels, mask, weights, batch.num_valid, batch.halves)


def _moved(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    # From pinned memory the copy does not hold up the host.
    return tensor.pin_memory().to(device, non_blocking=True)
