"""Moments from groups of samples, as the paper has them."""

from collections.abc import Iterator

import torch

from dlrm.config import MomentsConfig
from dlrm.gradient_stats.estimator import MeasuringEstimator
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.positions import Share, chunks_of, num_of_class
from sharding.comm.gradient_buffer import GradientBuffer


class GroupMoments(MeasuringEstimator):
    """Compares the mean gradients of `num_groups` parts of the batch (arXiv 2309.13681, algorithm 1).

    Sample i of the global batch is of group i mod num_groups. With n_d valid samples in group d and w_d = n_d / n:
    g = sum w_d g_d, s = sum w_d g_d^2; the n_d differ by one at most. Costs three passes over the parameters a group.
    """

    def __init__(
        self, config: MomentsConfig, sums: GradientBuffer, chunk_size: int, every: int, *, has_halves: bool = False
    ) -> None:
        """config: its num_groups is a multiple of the ranks, so that groups are whole on theirs. Others: see
        `MeasuringEstimator`."""
        super().__init__(sums, chunk_size, every, has_halves=has_halves)
        self._num_groups = config.num_groups
        self._total = torch.zeros_like(sums.gradient)

    def _measured_chunks(self, share: Share, *, is_whole: bool) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        gradient, squares = self._sums.gradient, self._sums.extra_sums[0]
        self._total.zero_()
        start = 0
        for group in range(share.rank, self._num_groups, share.world_size):
            num_samples = num_of_class(group, self._num_groups, share.num_valid)
            end = start + num_samples
            if self._halves is not None and self._sum_of_first_half is not None:
                half = start + num_of_class(group, self._num_groups, self._halves.num_first)
                yield from chunks_of(start, half, self._chunk_size)
                self._sum_of_first_half += gradient
                start = half
            yield from chunks_of(start, end, self._chunk_size)
            if num_samples:
                squares.addcmul_(gradient, gradient, value=1 / num_samples)
            self._total += gradient
            gradient.zero_()
            start = end
        # Rows that only fill the share: nothing comes of them, and pooled embeddings want their gradient.
        yield from chunks_of(start, share.size, self._chunk_size)
        gradient.copy_(self._total)

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        num_compared = min(self._num_groups, num_valid)
        if not self.is_measuring or num_compared < 2:
            return None
        mean = self._sums.gradient
        # sum_d (n_d / n) (G_d / (n_d m))^2, with m the mean weight.
        mean_square = self._sums.extra_sums[0].div_(num_valid * mean_weight**2)
        first_half = self._first_half(num_valid, mean_weight)
        return Moments(mean, mean_square, mean, num_valid, num_valid, num_compared, first_half)
