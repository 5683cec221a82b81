"""The factors of variance reduction, from the moments of a step: by an own operator, or in plain torch."""

from dataclasses import dataclass

import torch

from dlrm.gradient_stats import Moments
from dlrm.gradient_stats.moments import LEAST_VARIANCE
from dlrm.native import fits_own_fp32


@dataclass(frozen=True)
class AtBounds:
    """Shares of the elements of the dense parameters."""

    gamma: float
    """Those whose factor is the least."""
    one: float
    """Those that are left as they are."""


class Factors:
    """Factors on the elements of the dense parameters: the squared signal-to-noise ratio over its mean in the layer,
    within [gamma, 1], smoothed over steps.

    The ratio is that of this step's gradient and of the variance of about one batch of samples: a step that measured a
    share of its batch moves the variance by that share. A small sample misses rare features: their variance would read
    about 0, their ratio would explode and dominate the mean of the layer.
    """

    def __init__(self, zeros: torch.Tensor, sizes: list[int], gamma: float, beta: float) -> None:
        """zeros: [P] of the parameters' format and device. sizes: elements of each layer, in order; its
        weight and bias are one. beta: of the smoothing."""
        self.variance = zeros
        """[P], of the gradients of single samples."""
        self.smoothed = zeros.clone()
        """[P], without bias correction."""
        self.num_moves = torch.zeros((), dtype=torch.int64)
        self._sizes, self._gamma, self._beta = sizes, gamma, beta

    @property
    def are_known(self) -> bool:
        """Whether there is a variance to go by."""
        return bool(self.num_moves)

    def corrected(self) -> torch.Tensor:
        """[P] The smoothed factors without the bias of their beginning."""
        return self.smoothed / (1 - self._beta ** self.num_moves.item())

    def move(self, moments: Moments) -> AtBounds | None:
        """Move by the moments of one step, in place: the variance by the share of the batch that was measured, the
        first time by all of it.

        Answers for this step's own factors, before they are smoothed; None, and nothing moves, as long as no sample had
        a gradient, as in a batch whose weights are all 0.
        """
        if not self.are_known and not moments.mean_square.any():
            return None
        move = self._by_own_operator if fits_own_fp32(self.variance) else self._in_plain_torch
        share = moments.num_measured / moments.num_samples
        at_gamma, at_one = move(moments, share if self.are_known else 1.0)
        self.num_moves += 1
        num_elements = self.variance.numel()
        return AtBounds(at_gamma / num_elements, at_one / num_elements)

    def _by_own_operator(self, moments: Moments, share: float) -> tuple[int, int]:
        return torch.ops.dlrm_dense.move_factors(
            self.variance,
            self.smoothed,
            moments.mean,
            moments.mean_square,
            moments.measured_mean,
            self._sizes,
            moments.to_single_samples,
            LEAST_VARIANCE,
            share,
            self._gamma,
            1 - self._beta,
        )

    def _in_plain_torch(self, moments: Moments, share: float) -> tuple[int, int]:
        self._move_variance(moments, share)
        # r is at most 2^20, however little of an element was measured.
        ratio = moments.mean.square()
        variance = torch.maximum(self.variance, LEAST_VARIANCE * ratio)
        # Signs, here and below, since a `where` or a comparison takes as long as several such passes.
        is_alive = (moments.mean.abs() + moments.mean_square).sign_().mul_(self.variance.sign())
        # What is no number is of its element alone, and not of the mean of its layer.
        is_alive.mul_(ratio.div_(variance).isfinite()).nan_to_num_(nan=0.0)
        ratio.nan_to_num_(nan=0.0).mul_(is_alive)
        for part, is_part_alive in zip(ratio.split(self._sizes), is_alive.split(self._sizes), strict=True):
            self._clip(part, is_part_alive)
        factor = ratio
        self.smoothed.lerp_(factor, 1 - self._beta)
        at_gamma, at_one = torch.stack(
            [torch.eq(factor, bound, out=is_alive).sum() for bound in (self._gamma, 1.0)]
        ).tolist()
        return at_gamma, at_one

    def _move_variance(self, moments: Moments, share: float) -> None:
        """By the share that was measured; of elements that were seen, since it is no news that a few samples miss some.

        One that was never seen before takes what is seen now.
        """
        is_seen = moments.mean_square.sign()
        weight = torch.addcmul(is_seen, is_seen, self.variance.sign(), value=share - 1.0)
        self.variance.lerp_(moments.variance(), weight)

    def _clip(self, ratio: torch.Tensor, is_alive: torch.Tensor) -> None:
        """Make the ratios of one layer its factors, in place; is_alive in ones and zeros. Elements without gradient
        are dead, and count in no mean; all of them dead are left alone.
        """
        mean_ratio = ratio.sum() / is_alive.sum()
        # Over a mean of nothing, or of 0.
        ratio.div_(mean_ratio).clamp_(self._gamma, 1.0).nan_to_num_(nan=1.0)
