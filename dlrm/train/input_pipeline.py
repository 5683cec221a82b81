"""Batches whose ids are on their way to the tables while the batch before them trains."""

from collections.abc import Generator, Iterable

import torch

from dlrm.data.batches import Batch
from dlrm.train.batch import DeviceBatch, to_device
from dlrm.train.step import TrainingStep
from sharding.embedding import BatchInputDist


def sent_ahead(
    batches: Iterable[Batch], step: TrainingStep, device: torch.device
) -> Generator[tuple[DeviceBatch, BatchInputDist], None, None]:
    """Each batch on `device` with its ids sent, one ahead. Every rank has as many batches, and asks for as many.

    When it is closed early, it waits until what it sent has arrived: nothing is left on its way.
    """
    ahead: tuple[DeviceBatch, BatchInputDist] | None = None
    try:
        for batch in batches:
            on_device = to_device(batch, device)
            before, ahead = ahead, (on_device, step.send(on_device))
            if before is not None:
                yield before
                # Its memory is free before the next one is fetched.
                before = None
        if ahead is not None:
            yield ahead
    finally:
        if ahead is not None:
            ahead[1].wait()
