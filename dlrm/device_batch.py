"""A batch as the training step takes it: torch tensors on this rank's device."""

from dataclasses import dataclass

import numpy as np
import torch

from dlrm.data.batches import Batch


@dataclass(frozen=True)
class DeviceBatch:
    """This rank's share of one global batch; rows of mask 0 fill a short one and have no ids."""

    dense: torch.Tensor
    """[b, N] float32"""
    ids: torch.Tensor
    """[F * valid rows of this rank] int64, feature by feature"""
    lengths: torch.Tensor
    """[F * b] int32: 1 where a row is valid, else 0"""
    labels: torch.Tensor
    """[b] float32"""
    mask: torch.Tensor
    """[b] float32"""
    num_valid: int
    """Valid rows of the GLOBAL batch."""


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Move a batch of numpy arrays to `device`."""
    is_valid = batch.mask > 0
    ids = batch.ids if is_valid.all() else batch.ids[:, is_valid]
    lengths = np.tile(is_valid.astype(np.int32), len(batch.ids))
    arrays = (batch.dense, ids.reshape(-1), lengths, batch.labels, batch.mask)
    dense, flat_ids, flat_lengths, labels, mask = (torch.from_numpy(array).to(device) for array in arrays)
    return DeviceBatch(dense, flat_ids, flat_lengths, labels, mask, batch.num_valid)
