"""The slices of a share: what is exchanged at a time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sharding.planner.slice_size import slice_size


@dataclass(frozen=True)
class Slices:
    """Equal runs of the b samples of every rank; the last may be short. The same on every rank."""

    num_samples: int
    size: int

    @classmethod
    def of(cls, num_samples: int, sample_bytes: int, chunk_size: int) -> "Slices":
        """See `slice_size`."""
        return cls(num_samples, slice_size(num_samples, sample_bytes, chunk_size))

    def __len__(self) -> int:
        return math.ceil(self.num_samples / self.size)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self.bounds(number) for number in range(len(self)))

    def bounds(self, number: int) -> tuple[int, int]:
        """First sample of a slice, and the one behind its last."""
        start = number * self.size
        return start, min(start + self.size, self.num_samples)

    def number_of(self, sample: int) -> int:
        """Of the slice that has it."""
        return sample // self.size

    def rows(self, block: torch.Tensor, number: int) -> torch.Tensor:
        """Those of slice `number` in a block [W * b, C] that is ordered by slice, by rank, by sample."""
        start, end = self.bounds(number)
        num_sources = len(block) // self.num_samples
        return block[num_sources * start : num_sources * end]
