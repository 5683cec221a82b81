"""Moments from groups of samples, as in the VRGD paper."""

from functools import partial

import torch

from dlrm.config import MomentsConfig
from dlrm.gradient_stats.estimator import MeasuringEstimator, SampleSpan, Share, count_positions
from dlrm.gradient_stats.moments import Moments
from sharding.comm.gradient_buffer import GradientBuffer


class GroupMoments(MeasuringEstimator):
    """Estimator that compares the mean gradients g_d of `num_groups` parts of a batch (arXiv 2309.13681, algorithm 1).

    Sample i of the global batch is in group i mod num_groups. With n_d valid samples in group d and w_d = n_d / n:
    g = sum_d w_d g_d and s = sum_d w_d g_d^2; the n_d differ by one at most. Each group costs three passes over the
    parameters.
    """

    def __init__(self, config: MomentsConfig, gradients: GradientBuffer, *, has_halves: bool = False) -> None:
        """Allocate one more sum of P elements. config: its num_groups is a multiple of the ranks, so that each group
        is on one rank. Other arguments: as for `MeasuringEstimator`.
        """
        super().__init__(gradients, has_halves=has_halves)
        self.num_groups = self._num_groups = config.num_groups
        self._total = torch.zeros_like(gradients.gradient)
        """[P] gradient summed over the groups that have ended; the buffer holds the gradient of the current group."""

    def _begin_measured_batch(self, share: Share, *, is_whole: bool) -> list[SampleSpan]:  # noqa: ARG002
        self._total.zero_()
        spans: list[SampleSpan] = []
        start = 0
        # The share holds its groups one after another; within a group the first half of the batch comes first.
        for group in range(share.rank, self._num_groups, share.world_size):
            num_samples = count_positions(group, self._num_groups, share.num_valid)
            if self._halves is not None:
                num_first = count_positions(group, self._num_groups, self._halves.num_first)
                spans.append(SampleSpan(start + num_first, self._add_to_first_half))
            spans.append(SampleSpan(start + num_samples, partial(self._end_group, num_samples)))
            start += num_samples
        # Then the padding rows of the share: their gradient is 0, and still has to be written for their embeddings.
        spans.append(SampleSpan(share.size, self._restore_total))
        return spans

    def _add_to_first_half(self) -> None:
        """Add the gradient of the group's samples so far, which are its samples of the first half."""
        assert self._sum_of_first_half is not None, "the batch has halves"
        self._sum_of_first_half += self._gradients.gradient

    def _end_group(self, num_samples: int) -> None:
        """Add the group's gradient G_d to the total and G_d^2 / n_d to the squares, and clear it for the next group."""
        gradient, squares = self._gradients.gradient, self._gradients.extra_sums[0]
        if num_samples:
            squares.addcmul_(gradient, gradient, value=1 / num_samples)
        self._total += gradient
        gradient.zero_()

    def _restore_total(self) -> None:
        """Put the gradient of the whole share back, where the all-reduce expects it."""
        self._gradients.gradient.copy_(self._total)

    def compute_moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        num_compared = min(self._num_groups, num_valid)
        if not self.is_measuring or num_compared < 2:
            return None
        mean = self._gradients.gradient
        # s = sum_d (n_d / n) (G_d / (n_d m))^2 = sum_d (G_d^2 / n_d) / (n m^2) with m the mean weight.
        mean_square = self._gradients.extra_sums[0].div_(num_valid * mean_weight**2)
        first_half = self._average_first_half(num_valid, mean_weight)
        return Moments(mean, mean_square, mean, num_valid, num_valid, num_compared, first_half)
