"""One buffer of every rank, of the same length, added up on all of them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import CACHE_LINE_BYTES, round_up_to_cache_line, share_buffers


class AllReduceWork(Protocol):
    """A sum on its way."""

    def wait(self) -> object:
        """Until the buffer holds it. Collective."""


class AllReducer(Protocol):
    """Adds up what all ranks hold in their buffers."""

    @property
    def buffer(self) -> torch.Tensor:
        """[n] This rank's, zeros at first."""
        ...

    def start(self, num_elements: int) -> AllReduceWork:
        """Of so many from the beginning on, which nobody touches before they have come. Collective; an agreement of all
        ranks must lie between the last change of anybody's buffer and this."""
        ...


def make_all_reducer(ranks: Ranks, num_elements: int, dtype: torch.dtype, *, is_in_memory: bool) -> AllReducer:
    """is_in_memory: all ranks share one. Collective."""
    if is_in_memory and ranks.world_size > 1:
        return SharedMemoryAllReduce(ranks, num_elements, dtype)
    return ProcessGroupAllReduce(ranks, num_elements, dtype)


class ProcessGroupAllReduce:
    """By all-reduce."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        self._group = ranks.dense_group
        self.buffer = torch.zeros(num_elements, dtype=dtype, device=ranks.device)

    def start(self, num_elements: int) -> AllReduceWork:
        work = dist.all_reduce(self.buffer[:num_elements], group=self._group, async_op=True)
        assert work is not None, "an asynchronous collective returns its work"
        return work


class SharedMemoryAllReduce:
    """Over ranks that share memory: each adds one part up for all. Nothing is sent."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        """Collective."""
        self._ranks = ranks
        num_bytes, num_added = (
            round_up_to_cache_line(num_elements * dtype.itemsize),
            self._largest_part(num_elements, dtype),
        )
        buffers = share_buffers(ranks.dense_group, num_bytes + num_added * dtype.itemsize)
        self._given = [buffer.tensor(dtype, (num_elements,)) for buffer in buffers]
        """By rank, what it brings; another one reads its part of it until the barrier."""
        self._added = [buffer.tensor(dtype, (num_added,), num_bytes) for buffer in buffers]
        """By rank, the sum of its part. Apart from what was given: others still copy it up to the next agreement, while
        this rank already works on its own copy."""

    @property
    def buffer(self) -> torch.Tensor:
        return self._given[self._ranks.rank]

    def start(self, num_elements: int) -> AllReduceWork:
        parts = self._parts(num_elements)
        own = parts[self._ranks.rank]
        first, second, *others = (given[own] for given in self._given)
        added = torch.add(first, second, out=self._added[self._ranks.rank][: len(first)])
        for other in others:
            added += other
        all_added = dist.barrier(self._ranks.dense_group, async_op=True)
        assert all_added is not None, "an asynchronous collective returns its work"
        return _SharedMemoryWork(all_added, [self.buffer[part] for part in parts], self._added)

    def _largest_part(self, num_elements: int, dtype: torch.dtype) -> int:
        """Elements of a rank's part: whole lines of the cache, so that none is written by two."""
        line = CACHE_LINE_BYTES // dtype.itemsize
        return -(-num_elements // (line * self._ranks.world_size)) * line

    def _parts(self, num_elements: int) -> list[slice]:
        """One a rank, in their order; the last ones may be short, or empty."""
        size = self._largest_part(num_elements, self.buffer.dtype)
        starts = [min(rank * size, num_elements) for rank in range(self._ranks.world_size + 1)]
        return [slice(start, end) for start, end in pairwise(starts)]


@dataclass(frozen=True)
class _SharedMemoryWork:
    """All parts, once every rank is through with its own."""

    all_added: dist.Work
    parts: list[torch.Tensor]
    """Of this rank's buffer."""
    added: list[torch.Tensor]
    """Each at least as long as its part."""

    def wait(self) -> None:
        self.all_added.wait()
        for part, added in zip(self.parts, self.added, strict=True):
            part.copy_(added[: len(part)])
