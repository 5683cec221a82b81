"""The input pipeline: the ids of a batch travel to the tables while the batch before it trains."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing

import torch

from dlrm.data.batches import Batch
from dlrm.record import WAIT_FOR_ROWS
from dlrm.train.batch import DeviceBatch
from dlrm.train.input_copies import copy_to_device
from dlrm.train.step import TrainingStep
from sharding.embedding import BatchInputDist


def prefetch_input_dist(
    batches: Iterable[Batch], step: TrainingStep, device: torch.device
) -> Generator[tuple[DeviceBatch, BatchInputDist], None, None]:
    """Yield each batch on `device` with its input dist, which was started one batch ahead.

    Every rank must have, and ask for, the same number of batches. A generator that is closed early waits for the input
    dist in flight.
    """
    ahead: tuple[DeviceBatch, BatchInputDist] | None = None
    try:
        with closing(copy_to_device(batches, device, step.tables.id_dtype)) as copies:
            while (batch := _fetch(copies, step)) is not None:
                current, ahead = ahead, (batch, step.start_input_dist(batch))
                if current is not None:
                    yield current
                    # Frees its memory before the next batch is fetched.
                    current = None
        if ahead is not None:
            yield ahead
    finally:
        if ahead is not None:
            ahead[1].wait()


def _fetch(batches: Iterator[DeviceBatch], step: TrainingStep) -> DeviceBatch | None:
    """Return the next batch, None after the last one, and count the time until it is there."""
    with step.clock.part(WAIT_FOR_ROWS):
        return next(batches, None)
