"""What the training step asks of an estimator of moments."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from dlrm.moments.moments import Moments
from dlrm.moments.positions import chunks_of
from sharding.dense import FlatSums


@dataclass(frozen=True)
class Positions:
    """The samples of one global batch that this rank trains on: [start, end) of its positions."""

    start: int
    end: int
    num_valid: int
    """n, valid samples of the GLOBAL batch, which come first."""


class Estimator(ABC):
    """Takes the squares that it needs out of the backward passes of the chunks, into `sums.extra`."""

    is_measuring: bool = False
    """Whether the batch that `chunks` went through last has squares."""

    def __init__(self, sums: FlatSums, chunk_size: int) -> None:
        self._sums = sums
        self._chunk_size = chunk_size

    @abstractmethod
    def chunks(self, share: Positions, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        """The chunks of a batch, as positions in the share, in their order: pooled embeddings arrive in that.

        index: batches before this one. is_whole: all samples are to be measured, not a share of them: variance
        reduction has nothing older to go by.

        The caller makes the forward and backward pass of each before it asks for the next, with the gradient of the
        loss sum; at the end `sums` holds this rank's sums.
        """

    @abstractmethod
    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        """Of the batch; None where nothing was measured, or can be compared.

        From the sums over all ranks, whose gradient has been divided by n = num_valid and the mean weight of a sample
        already. Asked once a batch: the moments are these sums, scaled in place, and good until they are cleared.
        """

    def _chunks(self, share: Positions) -> Iterator[tuple[int, int]]:
        return chunks_of(0, share.end - share.start, self._chunk_size)
