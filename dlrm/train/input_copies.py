"""Copies of batches to the device that trains, ahead of the training.

A batch goes to a GPU as one block. A thread writes its arrays one behind the other into pinned memory; one transfer, on
a stream of its own, takes them to the device, and the tensors of the batch are views of the block there. At the time of
a step the block of the next batch is complete, its ids travel already, and the transfer of the one after it is under
way. All calls of CUDA are made by the thread that trains: one of another thread would break the capture of a graph.
"""

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlrm.data.batches import Batch
from dlrm.data.order import BlockHalves
from dlrm.data.threads import prefetch
from dlrm.train.batch import DeviceBatch, to_device
from sharding.jagged import BagSizes, JaggedIds

_ALIGNMENT_BYTES = 256
"""Alignment of arrays in a block, as of torch's own allocations on GPUs."""
_NUM_SLOTS = 3
"""Blocks of pinned memory: one is written, one is complete, and one is being copied."""


def copy_to_device(
    batches: Iterable[Batch], device: torch.device, id_dtype: torch.dtype
) -> Generator[DeviceBatch, None, None]:
    """Yield each batch on `device`: a CPU shares its memory, a GPU gets copies with ids of `id_dtype`."""
    if device.type == "cpu":
        for batch in batches:
            yield to_device(batch, device)
    else:
        yield from PinnedRing(device, id_dtype).copy_ahead(batches)


@dataclass(frozen=True)
class _Array:
    """Place of one array in a block."""

    start: int
    """Position of its first byte."""
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def view(self, block: torch.Tensor) -> torch.Tensor:
        """View the array in a block of bytes."""
        return block[self.start : self.end].view(self.dtype).view(self.shape)


@dataclass(frozen=True)
class _Layout:
    """Places of a batch's arrays in a block, and what a batch has besides."""

    arrays: list[_Array]
    """Arrays in the order of `_list_arrays`."""
    index: int
    num_valid: int
    halves: BlockHalves | None
    sizes: BagSizes | None = None
    """Sizes of the bags, once the batch is written: reading the lengths on a GPU would hold up the host."""

    @property
    def num_bytes(self) -> int:
        return self.arrays[-1].end

    def view(self, block: torch.Tensor) -> DeviceBatch:
        """View the batch in a block."""
        dense, values, lengths, labels, mask, *others = (array.view(block) for array in self.arrays)
        weights = others[0] if others else mask
        return DeviceBatch(
            self.index,
            dense,
            JaggedIds(values, lengths, self.sizes),
            labels,
            mask,
            weights,
            self.num_valid,
            self.halves,
        )


@dataclass
class _Slot:
    """Block of pinned memory, which is written again once it was copied."""

    copied: Any
    """Event at the end of its last copy."""
    memory: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


class PinnedRing:
    """Pinned memory of a few batches, which is kept from batch to batch, since new one is slow to get."""

    def __init__(self, device: torch.device, id_dtype: torch.dtype) -> None:
        """Make the ring, as yet without memory. device: the current one of this thread, or a CPU in tests."""
        self._device, self._id_dtype = device, id_dtype
        # Modules of devices have the same streams and events; those of CPUs do nothing.
        self._module: Any = torch.get_device_module(device)
        self._stream = self._module.Stream()
        self._slots = [_Slot(self._module.Event()) for _ in range(_NUM_SLOTS)]

    def copy_ahead(self, batches: Iterable[Batch]) -> Generator[DeviceBatch, None, None]:
        """Yield each batch on the device, for use on the current stream; the next one's copy has been started then."""
        with closing(prefetch(_write, self._assign_slots(batches), num_ahead=1)) as written:
            ahead: tuple[torch.Tensor, _Slot, _Layout] | None = None
            for slot, layout in written:
                current, ahead = ahead, (self._start_copy(slot, layout), slot, layout)
                if current is not None:
                    yield self._receive(*current)
                    # Frees its memory before the next batch is fetched.
                    current = None
            if ahead is not None:
                yield self._receive(*ahead)

    def _assign_slots(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, _Slot, _Layout]]:
        """Yield each batch with a slot that has room for it, and its layout there."""
        for batch, slot in zip(batches, cycle(self._slots), strict=False):
            layout = _lay_out(batch, self._id_dtype)
            # Hardly ever a wait: the copy was started a whole step ago.
            slot.copied.synchronize()
            if slot.memory.numel() < layout.num_bytes:
                # The allocator of pinned memory would round up to a power of two itself.
                num_bytes = 1 << (layout.num_bytes - 1).bit_length()
                slot.memory = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
            yield batch, slot, layout

    def _start_copy(self, slot: _Slot, layout: _Layout) -> torch.Tensor:
        """Start to copy a batch to a new block of the device, and return the block."""
        with self._module.stream(self._stream):
            block = torch.empty(layout.num_bytes, dtype=torch.uint8, device=self._device)
            block.copy_(slot.memory[: layout.num_bytes], non_blocking=True)
            slot.copied.record()
        return block

    def _receive(self, block: torch.Tensor, slot: _Slot, layout: _Layout) -> DeviceBatch:
        """Return a batch that the current stream may use: it waits for the copy, while the host does not."""
        stream = self._module.current_stream()
        stream.wait_event(slot.copied)
        if self._device.type == "cuda":
            # The block belongs to the stream of copies, which must not reuse it before this one is done with it.
            block.record_stream(stream)
        return layout.view(block)


def _lay_out(batch: Batch, id_dtype: torch.dtype) -> _Layout:
    arrays: list[_Array] = []
    for source in _list_arrays(batch):
        start = -(-arrays[-1].end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES if arrays else 0
        dtype = id_dtype if source is batch.ids.values else torch.from_numpy(source[:0]).dtype
        arrays.append(_Array(start, source.shape, dtype))
    return _Layout(arrays, batch.index, batch.num_valid, batch.halves)


def _write(assigned: tuple[Batch, _Slot, _Layout]) -> tuple[_Slot, _Layout]:
    """Write a batch to its slot. Numpy copies without Python's lock, so that the training goes on meanwhile."""
    batch, slot, layout = assigned
    for source, array in zip(_list_arrays(batch), layout.arrays, strict=True):
        np.copyto(array.view(slot.memory).numpy(), source, casting="same_kind")
    return slot, replace(layout, sizes=batch.ids.measure_sizes())


def _list_arrays(batch: Batch) -> list[NDArray[Any]]:
    """List the arrays of a batch in the order of a block; weights come last, if there are any."""
    weights = [] if batch.weights is None else [batch.weights]
    return [batch.dense, batch.ids.values, batch.ids.lengths, batch.labels, batch.mask, *weights]
