"""The input pipeline: the ids of a batch travel to the tables while the batch before it trains."""

from collections.abc import Generator, Iterable

import torch

from dlrm.data.batches import Batch
from dlrm.train.batch import DeviceBatch, to_device
from dlrm.train.step import TrainingStep
from sharding.embedding import BatchInputDist


def prefetch_input_dist(
    batches: Iterable[Batch], step: TrainingStep, device: torch.device
) -> Generator[tuple[DeviceBatch, BatchInputDist], None, None]:
    """Yield each batch on `device` with its input dist, which was started one batch ahead.

    Every rank must have, and ask for, the same number of batches. A generator that is closed early waits for the input
    dist that is in flight.
    """
    ahead: tuple[DeviceBatch, BatchInputDist] | None = None
    try:
        for batch in batches:
            on_device = to_device(batch, device)
            current, ahead = ahead, (on_device, step.start_input_dist(on_device))
            if current is not None:
                yield current
                # Frees its memory before the next batch is fetched.
                current = None
        if ahead is not None:
            yield ahead
    finally:
        if ahead is not None:
            ahead[1].wait()
