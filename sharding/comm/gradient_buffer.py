"""Dense gradients in one flat buffer, and the all-reduce that sums it over ranks.

Ranks that share memory sum it there, each rank one part for all; others use the all-reduce of their process group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
import torch.distributed as dist

from sharding.comm.collectives import start_all_reduce
from sharding.comm.exchange_clock import Waitable
from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import CACHE_LINE_BYTES, SharedBuffer, round_up_to_cache_line, share_buffers


class AllReducer(Protocol):
    """A buffer on every rank, all of the same length, and a way to sum them."""

    @property
    def buffer(self) -> torch.Tensor:
        """[n] this rank's buffer; zeros at first."""
        ...

    def start(self, num_elements: int) -> Waitable:
        """Start to sum the first `num_elements` over all ranks. Do not touch them until `wait()`.

        Collective; a vote must come between the last write of any rank to its buffer and this call.
        """
        ...


class GradientBuffer:
    """Gradients of the dense parameters, P elements in all, followed by room for more sums of P elements.

    The `.grad` of every parameter is a view of it, so that backward adds into it without a copy.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        ranks: Ranks,
        *,
        num_extra_sums: int,
        is_in_memory: bool = False,
    ) -> None:
        """Allocate the buffer on every rank, and point the gradients of `parameters` to it. Collective.

        parameters: all of one dtype, also the buffer's. num_extra_sums: sums of P elements in addition to the gradient.
        is_in_memory: whether all ranks share memory.
        """
        self.sizes = [parameter.numel() for parameter in parameters]
        self._shapes = [parameter.shape for parameter in parameters]
        num_elements = sum(self.sizes)
        self._all_reducer = make_all_reducer(
            ranks, (1 + num_extra_sums) * num_elements, parameters[0].dtype, is_in_memory=is_in_memory
        )
        self.gradient, *self.extra_sums = self._all_reducer.buffer.split(num_elements)
        """[P] each."""
        for parameter, gradient in zip(parameters, self.unflatten(self.gradient), strict=True):
            parameter.grad = gradient

    @property
    def sums(self) -> torch.Tensor:
        """[(1 + num_extra_sums) P] this rank's gradient and all extra sums."""
        return self._all_reducer.buffer

    def unflatten(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """View `flat` [P] as tensors of the parameters' shapes, in their order."""
        return [part.view(shape) for part, shape in zip(flat.split(self.sizes), self._shapes, strict=True)]

    def zero(self) -> None:
        """Set the gradient and all extra sums to zero."""
        self.sums.zero_()

    def sum_elements(self) -> torch.Tensor:
        """Sum this rank's whole buffer to a scalar; not finite if any element is not."""
        return self.sums.sum()

    def start_all_reduce(self, *, with_extra_sums: bool) -> Waitable:
        """Start to sum over all ranks; `wait()` on the result before reading. Collective, after a vote."""
        num_elements = len(self.sums) if with_extra_sums else len(self.gradient)
        return self._all_reducer.start(num_elements)


def make_all_reducer(ranks: Ranks, num_elements: int, dtype: torch.dtype, *, is_in_memory: bool) -> AllReducer:
    """Choose the way to sum `num_elements`. is_in_memory: whether all ranks share memory. Collective."""
    if is_in_memory and ranks.world_size > 1:
        return SharedMemoryAllReduce(ranks, num_elements, dtype)
    return ProcessGroupAllReduce(ranks, num_elements, dtype)


class ProcessGroupAllReduce:
    """Sums by the all-reduce of the dense gradients' process group."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        """Allocate this rank's buffer."""
        self._ranks = ranks
        self.buffer = torch.zeros(num_elements, dtype=dtype, device=ranks.device)

    def start(self, num_elements: int) -> Waitable:
        """Start the all-reduce; see `AllReducer.start`."""
        return start_all_reduce(self._ranks, self.buffer[:num_elements], "dense gradients")


class SharedMemoryAllReduce:
    """Sums in the memory that ranks share: each rank sums one part of all buffers. Nothing is sent."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        """Allocate a buffer on every rank and map the buffers of all ranks. Collective."""
        self._ranks = ranks
        input_bytes, num_summed = (
            round_up_to_cache_line(num_elements * dtype.itemsize),
            self._count_part_elements(num_elements, dtype),
        )
        num_bytes = input_bytes + num_summed * dtype.itemsize
        buffers = share_buffers(ranks.dense_group, lambda: SharedBuffer.create(num_bytes))
        self._inputs = [buffer.view_tensor(dtype, (num_elements,)) for buffer in buffers]
        """[n] of every rank, by rank. The other ranks read their parts of it until the barrier."""
        self._summed_parts = [buffer.view_tensor(dtype, (num_summed,), input_bytes) for buffer in buffers]
        """The part that every rank has summed, by rank. It is not written over the inputs: other ranks still copy it
        until the next vote, while this rank already adds into its own input."""

    @property
    def buffer(self) -> torch.Tensor:
        """[n] this rank's input, which holds the sum after `wait()`."""
        return self._inputs[self._ranks.rank]

    def start(self, num_elements: int) -> Waitable:
        """Sum this rank's part of all inputs, then start a barrier; see `AllReducer.start`."""
        parts = self._cut_parts(num_elements)
        own = parts[self._ranks.rank]
        # In the order of the ranks, so that every element has the same sum whichever rank computes it.
        first, second, *others = (buffer[own] for buffer in self._inputs)
        summed = torch.add(first, second, out=self._summed_parts[self._ranks.rank][: len(first)])
        for other in others:
            summed += other
        barrier = dist.barrier(self._ranks.dense_group, async_op=True)
        assert barrier is not None, "an asynchronous collective returns its work"
        return _SharedMemoryWork(barrier, [self.buffer[part] for part in parts], self._summed_parts)

    def _count_part_elements(self, num_elements: int, dtype: torch.dtype) -> int:
        """Count the elements of one rank's part: whole cache lines, so that no two ranks write the same one."""
        line = CACHE_LINE_BYTES // dtype.itemsize
        return -(-num_elements // (line * self._ranks.world_size)) * line

    def _cut_parts(self, num_elements: int) -> list[slice]:
        """Cut `num_elements` into one part per rank, in the order of the ranks; the last ones may be short or empty."""
        size = self._count_part_elements(num_elements, self.buffer.dtype)
        starts = [min(rank * size, num_elements) for rank in range(self._ranks.world_size + 1)]
        return [slice(start, end) for start, end in pairwise(starts)]


@dataclass(frozen=True)
class _SharedMemoryWork:
    """Waits for every rank's part, and copies them into this rank's buffer."""

    barrier: dist.Work
    parts: list[torch.Tensor]
    """Views of this rank's buffer, one per rank."""
    summed_parts: list[torch.Tensor]
    """Sums, one per rank, each at least as long as its part."""

    def wait(self) -> None:
        self.barrier.wait()
        for part, summed in zip(self.parts, self.summed_parts, strict=True):
            part.copy_(summed[: len(part)])
