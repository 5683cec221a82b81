"""The interface between estimators of moments and the dense pass, and the samples of a batch that a rank has."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dlrm.data.order import BlockHalves
from dlrm.gradient_stats.moments import HalfMean, Moments
from sharding.comm.gradient_buffer import GradientBuffer


@dataclass(frozen=True)
class Share:
    """The samples of one global batch that a rank trains on: those at positions rank, rank + W, rank + 2 W, ...

    So the first samples of a global batch are spread evenly over all ranks, and are the same samples for any number of
    ranks and any chunk.
    """

    rank: int
    world_size: int
    size: int
    """b, samples of the share; the valid ones come first."""
    num_valid: int
    """n, valid samples of the GLOBAL batch, which come first in it."""
    is_measured: bool = True
    """Whether moments of this batch are measured; never of the short one at the end of a run."""
    halves: BlockHalves | None = None
    """Blocks of the data that the GLOBAL batch draws on; None if it draws on all of them."""
    is_full: bool = True
    """Whether the GLOBAL batch has as many valid samples as it should; not the short one at the end of a run."""
    num_groups: int | None = None
    """Groups that the samples are in, by their position modulo this number; the share has one group after another.
    None: the share is in the order of the positions."""

    def count_among_first(self, count: int) -> int:
        """Count the samples of this share among the first `count` of the global batch."""
        return count_positions(self.rank, self.world_size, count)

    def list_first(self, count: int) -> list[tuple[int, int]]:
        """List the ranges [start, end) of the share with its samples among the first `count` of the global batch."""
        num_groups, ranges, start = self.num_groups or self.world_size, list[tuple[int, int]](), 0
        for group in range(self.rank, num_groups, self.world_size):
            ranges.append((start, start + count_positions(group, num_groups, min(count, self.num_valid))))
            start += count_positions(group, num_groups, self.num_valid)
        return ranges


def count_positions(remainder: int, modulus: int, count: int) -> int:
    """Count the positions i below `count` with i mod modulus = remainder."""
    # ceil((count - remainder) / modulus) in integers.
    return max(0, -(-(count - remainder) // modulus))


def _do_nothing() -> None: ...


@dataclass(frozen=True)
class SampleSpan:
    """Consecutive samples of a share, from the end of the span before up to `end`."""

    end: int
    at_end: Callable[[], None] = _do_nothing
    """Hook that the dense pass calls after the last sample of the span."""


class Estimator:
    """Collector of the gradient's moments during the dense pass. The base class measures nothing."""

    is_measuring: bool = False
    """Whether the batch of the last `begin_batch` is measured."""
    num_groups: int | None = None
    """Groups that the samples of a share must be in, one after another; None if it has them in their order."""
    is_adding_squares: bool = False
    """Whether the backward pass of the next chunk adds squares of single samples' gradients."""

    def begin_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:  # noqa: ARG002
        """Prepare for a batch, and cut this rank's share into spans; the last one ends with the share.

        The dense pass makes the forward and backward passes of each span's samples, with the gradient of the loss sum,
        and then calls `at_end`. After the last span the gradient buffer holds this rank's sums.

        is_whole: measure all samples, not a part of them: variance reduction has no older measurement to go by.
        """
        return [SampleSpan(share.size)]

    def compute_moments(self, num_valid: int, mean_weight: float) -> Moments | None:  # noqa: ARG002
        """Compute the moments of the batch; None if it was not measured, or has fewer than two parts to compare.

        Called once a batch, when the gradient buffer holds the sums over all ranks, with a gradient that is divided by
        n = num_valid and by the mean weight of a sample already. The moments are these sums, scaled in place: they are
        valid until the buffer is zeroed.
        """
        return None


class MeasuringEstimator(Estimator):
    """Estimator that measures batches, and the mean of their first half, if they have halves."""

    def __init__(self, gradients: GradientBuffer, *, has_halves: bool = False) -> None:
        """Take the last of the buffer's extra sums for the first half.

        has_halves: whether batches have halves that are drawn from different blocks of the data.
        """
        self._gradients = gradients
        self._sum_of_first_half = gradients.extra_sums[-1] if has_halves else None
        """[P] gradient summed over the first half of the batch."""
        self._halves: BlockHalves | None = None
        """Halves of the batch of the last `begin_batch`."""

    def begin_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:
        self.is_measuring = share.is_measured
        self._halves = None if self._sum_of_first_half is None else share.halves
        return self._begin_measured_batch(share, is_whole=is_whole) if self.is_measuring else [SampleSpan(share.size)]

    @abstractmethod
    def _begin_measured_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:
        """Cut the share of a measured batch into spans; see `begin_batch`."""

    def _average_first_half(self, num_valid: int, mean_weight: float) -> HalfMean | None:
        """Turn the sum G_1 of the first half into its mean G_1 / (n_1 m), in place; None if the batch has no halves.

        n_1: samples of the first half. m: mean weight.
        """
        if self._halves is None or self._sum_of_first_half is None:
            return None
        num_first = self._halves.num_first
        mean: torch.Tensor = self._sum_of_first_half.div_(max(num_first, 1) * mean_weight)
        return HalfMean(mean, num_first / num_valid, self._halves.coverage, self._halves.window)
