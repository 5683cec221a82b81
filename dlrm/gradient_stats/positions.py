"""Which samples of a global batch a rank has, and their chunks. Pure functions."""

from collections.abc import Iterator
from dataclasses import dataclass

from dlrm.data.order import BlockHalves


@dataclass(frozen=True)
class Share:
    """The samples of one global batch that a rank trains on: those at positions rank, rank + W, rank + 2 W, ...

    So the first samples of a global batch are spread evenly over all ranks, and which they are depends on neither the
    ranks nor the chunk.
    """

    rank: int
    world_size: int
    size: int
    """b, samples of the share; the valid ones come first."""
    num_valid: int
    """n, valid samples of the GLOBAL batch, which come first in it."""
    is_short: bool = False
    """Whether it is the short batch at the end of a run, on which nothing is measured."""
    halves: BlockHalves | None = None
    """How the GLOBAL batch draws on the blocks of the data; None where it draws on all."""

    def num_among_first(self, count: int) -> int:
        """Count the samples of this share among the first `count` of the global batch."""
        return num_of_class(self.rank, self.world_size, count)


def num_of_class(number: int, num_classes: int, count: int) -> int:
    """Count the positions i below `count` with i mod num_classes = number."""
    return max(0, -(-(count - number) // num_classes))


def chunks_of(start: int, end: int, chunk_size: int) -> Iterator[tuple[int, int]]:
    """[start, end) in chunks; the last may be short."""
    for first in range(start, end, chunk_size):
        yield first, min(first + chunk_size, end)
