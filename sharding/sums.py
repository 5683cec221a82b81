"""One buffer of every rank, of the same length, added up on all of them."""

import itertools
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.distributed as dist

from sharding.ranks import Ranks
from sharding.shared import LINE_BYTES, is_one_machine, shared_by_all, whole_lines


class Pending(Protocol):
    """A sum on its way."""

    def wait(self) -> object:
        """Until the buffer holds it. Collective."""


class Adder(Protocol):
    """Adds up what all ranks hold in their buffers."""

    @property
    def buffer(self) -> torch.Tensor:
        """[n] This rank's, zeros at first."""
        ...

    def start(self, num_elements: int) -> Pending:
        """Of so many from the beginning on, which nobody touches before they have come. Collective; an agreement of all
        ranks must lie between the last change of anybody's buffer and this."""
        ...


def make_adder(
    ranks: Ranks, num_elements: int, dtype: torch.dtype, transport: Literal["auto", "memory", "network"]
) -> Adder:
    """In memory where all ranks share one, unless the network is asked for. Collective; the same on all ranks."""
    is_alone = ranks.world_size == 1
    if is_alone or ranks.device.type != "cpu" or transport == "network" or not is_one_machine(ranks.background_group):
        return OverNetwork(ranks, num_elements, dtype)
    return InMemory(ranks, num_elements, dtype)


class OverNetwork:
    """By all-reduce."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        self._group = ranks.dense_group
        self.buffer = torch.zeros(num_elements, dtype=dtype, device=ranks.device)

    def start(self, num_elements: int) -> Pending:
        work = dist.all_reduce(self.buffer[:num_elements], group=self._group, async_op=True)
        assert work is not None, "an asynchronous collective returns its work"
        return work


class InMemory:
    """Over ranks that share memory: each adds one part up for all. Nothing is sent."""

    def __init__(self, ranks: Ranks, num_elements: int, dtype: torch.dtype) -> None:
        """Collective."""
        self._ranks = ranks
        num_bytes = whole_lines(num_elements * dtype.itemsize)
        buffers = shared_by_all(ranks.dense_group, 2 * num_bytes)
        self._given = [buffer.tensor(dtype, (num_elements,)) for buffer in buffers]
        self._added = [buffer.tensor(dtype, (num_elements,), num_bytes) for buffer in buffers]
        """By rank, of which each fills its part."""

    @property
    def buffer(self) -> torch.Tensor:
        return self._given[self._ranks.rank]

    def start(self, num_elements: int) -> Pending:
        parts = self._parts(num_elements)
        own = parts[self._ranks.rank]
        first, second, *others = (given[own] for given in self._given)
        added = torch.add(first, second, out=self._added[self._ranks.rank][own])
        for other in others:
            added += other
        all_added = dist.barrier(self._ranks.dense_group, async_op=True)
        assert all_added is not None, "an asynchronous collective returns its work"
        return _Added(all_added, self.buffer, list(zip(parts, self._added, strict=True)))

    def _parts(self, num_elements: int) -> list[slice]:
        """One a rank, in their order; each begins with a whole line of the cache."""
        line = LINE_BYTES // self.buffer.dtype.itemsize
        size = -(-num_elements // (line * self._ranks.world_size)) * line
        starts = [min(rank * size, num_elements) for rank in range(self._ranks.world_size + 1)]
        return [slice(start, end) for start, end in itertools.pairwise(starts)]


@dataclass(frozen=True)
class _Added:
    """All parts, once every rank is through with its own."""

    all_added: dist.Work
    buffer: torch.Tensor
    parts: list[tuple[slice, torch.Tensor]]

    def wait(self) -> None:
        self.all_added.wait()
        for part, added in self.parts:
            self.buffer[part].copy_(added[part])
