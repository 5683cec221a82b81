"""A batch as the training step takes it: tensors on this rank's device."""

from dataclasses import dataclass

import torch

from dlrm.data.batches import Batch
from dlrm.data.order import BlockHalves
from sharding.jagged import JaggedIds


@dataclass(frozen=True)
class DeviceBatch:
    """Share of one global batch on this rank; rows of mask 0 fill up a short one and have no ids, label or weight."""

    index: int
    """Number of the global batch, counted from 0 through all epochs."""
    dense: torch.Tensor
    """[b, N] float32 dense features."""
    ids: JaggedIds[torch.Tensor]
    """Ids of F features of b samples."""
    labels: torch.Tensor
    """[b] float32, 0 or 1; [b, T] if there are further tasks, NaN where a label is missing."""
    mask: torch.Tensor
    """[b] float32, 1 for valid rows and 0 for those that fill up the share."""
    weights: torch.Tensor
    """[b] float32, how much each row counts; the mask itself if all rows count the same."""
    num_valid: int
    """Valid rows of the GLOBAL batch."""
    halves: BlockHalves | None = None
    """Blocks of the data that the GLOBAL batch draws on; see `dlrm.data.batches.Batch`."""


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch of numpy arrays to `device`, and wait for it; on a CPU share their memory."""
    arrays = (batch.dense, batch.ids.values, batch.ids.lengths, batch.labels, batch.mask)
    dense, values, lengths, labels, mask = (torch.from_numpy(array).to(device) for array in arrays)
    weights = mask if batch.weights is None else torch.from_numpy(batch.weights).to(device)
    # Measured here, since reading them on a GPU would hold up the host.
    ids = JaggedIds(values, lengths, None if device.type == "cpu" else batch.ids.measure_sizes())
    return DeviceBatch(batch.index, dense, ids, labels, mask, weights, batch.num_valid, batch.halves)
