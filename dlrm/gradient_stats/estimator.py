"""What the training step asks of an estimator of moments."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch

from dlrm.data.order import BlockHalves
from dlrm.gradient_stats.moments import HalfMean, Moments
from dlrm.gradient_stats.positions import Share, chunks_of
from sharding.comm.gradient_buffer import GradientBuffer


class Estimator(ABC):
    """Takes the squares that it needs out of the backward passes of the chunks, into `sums.extra`."""

    is_measuring: bool = False
    """Whether the batch that `chunks` went through last has squares."""

    def __init__(self, sums: GradientBuffer, chunk_size: int) -> None:
        self._sums = sums
        self._chunk_size = chunk_size

    @abstractmethod
    def chunks(self, share: Share, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        """Yield the chunks of a batch, as positions in the share, in their order: pooled embeddings arrive in that.

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


class MeasuringEstimator(Estimator):
    """Measures full batches every so many steps, and the gradient of their first half where they have halves."""

    def __init__(self, sums: GradientBuffer, chunk_size: int, every: int, *, has_halves: bool = False) -> None:
        """every: steps from one measurement to the next. has_halves: batches come with halves, whose first one's
        gradient takes the last of `sums.extra`."""
        super().__init__(sums, chunk_size)
        self._every = every
        self._sum_of_first_half = sums.extra_sums[-1] if has_halves else None
        """[P]"""
        self._halves: BlockHalves | None = None
        """Of the batch that `chunks` went through last."""

    def chunks(self, share: Share, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        self.is_measuring = index % self._every == 0 and not share.is_short
        self._halves = None if self._sum_of_first_half is None else share.halves
        if self.is_measuring:
            yield from self._measured_chunks(share, is_whole=is_whole)
        else:
            yield from chunks_of(0, share.size, self._chunk_size)

    @abstractmethod
    def _measured_chunks(self, share: Share, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        """Yield the chunks of a batch that is measured; see `chunks`."""

    def _first_half(self, num_valid: int, mean_weight: float) -> HalfMean | None:
        """Make the mean gradient of the first half of the samples, in place; None where the batch has no halves."""
        if self._halves is None or self._sum_of_first_half is None:
            return None
        num_first = self._halves.num_first
        mean: torch.Tensor = self._sum_of_first_half.div_(max(num_first, 1) * mean_weight)
        return HalfMean(mean, num_first / num_valid, self._halves.coverage)
