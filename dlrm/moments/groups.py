"""Moments from groups of samples, as the paper has them."""

from collections.abc import Iterator

import torch

from dlrm.config import MomentsConfig
from dlrm.moments.estimator import Estimator, Positions
from dlrm.moments.moments import Moments
from dlrm.moments.positions import bounds, chunks_of, num_in, parts_of
from sharding.dense import FlatSums


class GroupMoments(Estimator):
    """Compares the mean gradients of `num_groups` parts of the batch (arXiv 2309.13681, algorithm 1).

    With n_d valid samples in group d and w_d = n_d / n: g = sum w_d g_d, s = sum w_d g_d^2; the weights are those of a
    batch whose last rows only fill it. Costs three passes over the parameters a group.
    """

    def __init__(self, config: MomentsConfig, sums: FlatSums, chunk_size: int, global_size: int, every: int) -> None:
        """global_size: B; the groups are whole on their ranks, so that num_groups is a multiple of W. every: steps."""
        super().__init__(sums, chunk_size)
        self._num_groups = config.num_groups
        self._every = every
        self._global_size = global_size
        self._total = torch.zeros_like(sums.gradient)

    def chunks(self, share: Positions, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        self.is_measuring = index % self._every == 0
        if not self.is_measuring:
            yield from self._chunks(share)
            return
        gradient, (squares,) = self._sums.gradient, self._sums.extra
        self._total.zero_()
        for first, behind in parts_of(share.start, share.end, self._num_groups, self._global_size):
            yield from chunks_of(first - share.start, behind - share.start, self._chunk_size)
            num_samples = num_in(first, behind, share.num_valid)
            if num_samples:
                squares.addcmul_(gradient, gradient, value=1 / num_samples)
            self._total += gradient
            gradient.zero_()
        gradient.copy_(self._total)

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:
        if not self.is_measuring:
            return None
        in_groups = [
            num_in(*bounds(d, self._num_groups, self._global_size), num_valid) for d in range(self._num_groups)
        ]
        num_compared = sum(number > 0 for number in in_groups)
        if num_compared < 2:
            return None
        mean = self._sums.gradient
        # sum_d (n_d / n) (G_d / (n_d m))^2, with m the mean weight.
        mean_square = self._sums.extra[0].div_(num_valid * mean_weight**2)
        return Moments(mean, mean_square, mean, num_valid, num_valid, num_compared)
