"""Batch augmentation: the copies of each sample that the dense part is trained on (Hoffer et al. 2020, arXiv
1901.09335).

With m copies T_k of a sample x, the first one x itself, its loss is mean_k loss(T_k(x)): a sample counts as much as
without copies. In the paper all copies are changed; here the first is what is evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dlrm.config import JobConfig
from dlrm.data.errors import DataError
from dlrm.train.batch import DeviceBatch
from dlrm.train.dense_pass import Augmentation, ChunkRows
from sharding.comm.process_groups import Ranks
from sharding.counter_random import random_units, stream_key

_KEPT = 0xD809
"""Purpose of a stream of random numbers: which features a copy keeps."""
_LEAST_NORM = 1e-12
"""Norm of a gradient below which a copy moves less far, and without a gradient not at all."""


def make_augmentation(job: JobConfig, num_features: int, ranks: Ranks) -> Augmentation | None:
    """Make the augmentation that a job names; None if absent. Raises DataError if the data has nothing to move."""
    config = job.augmentation
    if config is None:
        return None
    if config.rate is not None:
        is_grouped = job.moments is not None and job.moments.estimator == "groups"
        num_groups = job.moments.num_groups if job.moments is not None and is_grouped else ranks.world_size
        groups = range(ranks.rank, num_groups, ranks.world_size)
        return FeatureDropout(config.copies, config.rate, job.run.seed, groups, num_groups)
    assert config.strength is not None, "each method has its setting"
    if not num_features:
        message = "adversarial moves pooled embeddings, and the data has no categorical feature"
        raise DataError(message, field="augmentation.method", valid='"feature_dropout"')
    return Adversary(config.copies, config.strength)


def draw_kept(key: int, positions: NDArray[np.int64], num_features: int, rate: float) -> NDArray[np.bool_]:
    """Draw whether each feature of the samples at these positions of the global batch is kept: [c, num_features]."""
    counters = positions[:, None] * num_features + np.arange(num_features)
    return random_units(key, counters) >= rate


def make_copy_key(seed: int, step: int, copy: int) -> int:
    """Compute the key of the random numbers of one copy of a batch."""
    return stream_key(seed, _KEPT, step, copy)


@dataclass(frozen=True)
class FeatureDropout:
    """Copies without some of their features: dense ones, and whole pooled embeddings.

    With probability p a feature is times 0, else times 1 / (1 - p), as in the dropout that the paper uses: a feature
    and the product of two have the mean that they are evaluated with. What is dropped depends on the seed, the step and
    the sample's position in the global batch alone.
    """

    copies: int
    rate: float
    seed: int
    groups: range
    """Groups of the global batch that this rank's share holds, one after another."""
    num_groups: int
    """Sample i of the global batch is in group i mod num_groups."""

    def __call__(self, rows: ChunkRows, batch: DeviceBatch, start: int) -> Iterator[ChunkRows]:
        rows = replace(rows, weights=rows.weights / self.copies)
        yield rows
        positions = self._find_positions(batch.num_valid, start, len(rows.labels))
        num_dense = rows.dense.shape[1]
        for copy in range(1, self.copies):
            key = make_copy_key(self.seed, batch.index, copy)
            kept = draw_kept(key, positions, num_dense + rows.pooled.shape[1], self.rate)
            factors = torch.from_numpy(kept).to(rows.dense) / (1.0 - self.rate)
            yield replace(
                rows,
                dense=rows.dense * factors[:, :num_dense],
                pooled=rows.pooled * factors[:, num_dense:, None],
            )

    def _find_positions(self, num_valid: int, start: int, count: int) -> NDArray[np.int64]:
        """Find the positions [count] in the global batch of the share's samples from `start` on; 0 for padding rows."""
        pieces: list[NDArray[np.int64]] = []
        for group in self.groups:
            members = range(group, num_valid, self.num_groups)
            piece = members[start : start + count]
            pieces.append(np.arange(piece.start, piece.stop, piece.step, dtype=np.int64))
            start, count = max(start - len(members), 0), count - len(piece)
        return np.pad(np.concatenate(pieces), (0, count))


@dataclass(frozen=True)
class Adversary:
    """Copies whose pooled embeddings move to where the loss is larger: x + strength |x| g / |g|, g the gradient at x.

    ConAdv (Liu et al. 2021, arXiv 2106.00221) takes g at the parameters before the last update, so that g and both
    copies can be computed at once, at the cost of a third pass. Here the pass of the unchanged copy leaves g anyway, at
    the present parameters, and the moved copy follows it: two passes, and nothing is stale. Any further copy goes on
    from the one before, as in FreeLB (Zhu et al. 2020, arXiv 1909.11764). The norm is relative, since embeddings could
    outgrow a fixed one, and L2, since signs of gradients near 0 would depend on how sums round.
    """

    copies: int
    strength: float

    def __call__(self, rows: ChunkRows, batch: DeviceBatch, start: int) -> Iterator[ChunkRows]:  # noqa: ARG002
        rows = replace(rows, weights=rows.weights / self.copies)
        yield rows
        gradient = _get_gradient(rows.pooled)
        length = self.strength * _compute_norms(rows.pooled.detach())
        at, slope = rows.pooled, gradient
        for _ in range(1, self.copies):
            direction = slope / _compute_norms(slope).clamp_min(_LEAST_NORM)
            at = (at.detach() + length * direction).requires_grad_()
            yield replace(rows, pooled=at)
            slope = _get_gradient(at)
            gradient += slope


def _get_gradient(pooled: torch.Tensor) -> torch.Tensor:
    assert pooled.grad is not None, "the pass has been made"
    return pooled.grad


def _compute_norms(pooled: torch.Tensor) -> torch.Tensor:
    """Compute the L2 norm [c, 1, 1] of each sample's part of [c, F, D]."""
    return torch.linalg.vector_norm(pooled, dim=(1, 2), keepdim=True)
