"""Functions that ranks run: the moments of one batch as a step measures them; and the same by single samples."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.config import ModelConfig, MomentsConfig
from dlrm.gradient_stats.estimator import Estimator, Share
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.model import make_dense_part
from dlrm.train.batch import DeviceBatch
from dlrm.train.profiler import PartClock
from dlrm.train.step import DensePass
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.jagged import JaggedIds

NUM_DENSE, NUM_FEATURES = 5, 3


@dataclass(frozen=True)
class Given:
    """A model, and a whole global batch whose last rows only fill it."""

    model: ModelConfig
    moments: MomentsConfig
    global_size: int
    num_valid: int
    chunk_size: int
    dtype: torch.dtype
    is_weighted: bool = False
    is_bf16: bool = False
    has_bf16_squares: bool = False

    def build(self) -> nn.Module:
        return make_dense_part(self.model, NUM_DENSE, NUM_FEATURES, seed=3).to(self.dtype)

    def rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """dense [B, N], pooled [B, F, D], labels [B], weights [B]; zeros but for the first where rows only fill."""
        generator = torch.Generator().manual_seed(11)
        dense = torch.randn(self.global_size, NUM_DENSE, generator=generator, dtype=torch.float64)
        shape = (self.global_size, NUM_FEATURES, self.model.embedding_dim)
        pooled = torch.randn(shape, generator=generator, dtype=torch.float64)
        labels = (torch.rand(self.global_size, generator=generator) < 0.3).double()
        weights = 3 * torch.rand(self.global_size, generator=generator, dtype=torch.float64)
        weights = weights * (weights > 0.5) if self.is_weighted else torch.ones_like(weights)
        weights[self.num_valid :] = 0.0
        # What the reference computes in float64 are the numbers that the model is given.
        dense, pooled, weights = (tensor.float().to(self.dtype) for tensor in (dense, pooled, weights))
        return dense, pooled, labels.to(self.dtype), weights

    def positions(self, ranks: Ranks) -> list[int]:
        """Positions in the global batch of this rank's share, valid ones first; group after group where there are
        groups: sample i is of rank i mod W, and of group i mod num_groups."""
        own = range(ranks.rank, self.global_size, ranks.world_size)
        num_groups = self.moments.num_groups if self.moments.estimator == "groups" else 1
        return sorted(own, key=lambda i: (i >= self.num_valid, i % num_groups, i))

    @property
    def mean_weight(self) -> float:
        return 1.7 if self.is_weighted else 1.0


@dataclass(frozen=True)
class Measured:
    mean: list[torch.Tensor]
    mean_square: list[torch.Tensor]
    """By parameter."""
    measured_mean: list[torch.Tensor]
    num_samples: int
    num_compared: int
    variance: torch.Tensor
    noise: tuple[list[float], list[float]]


class PlainBlock:
    """Pooled embeddings that were never looked up."""

    scale = 1.0

    def __init__(self, pooled: torch.Tensor) -> None:
        self._pooled = pooled

    def read_chunk(self, start: int, end: int) -> torch.Tensor:
        return self._pooled[start:end].clone()

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> torch.Tensor:
        self._pooled[start:end] = gradient
        return torch.zeros(())


def measure(ranks: Ranks, given: Given) -> Measured:
    model = given.build()
    parameters = list(model.parameters())
    sums = GradientBuffer(parameters, ranks, num_extra_sums=given.moments.num_extra_sums)
    estimator: Estimator
    if given.moments.estimator == "groups":
        estimator = GroupMoments(given.moments, sums, 1)
    else:
        estimator = ExactMoments(given.moments, model, sums, 1, is_bf16=given.has_bf16_squares)
    own = given.positions(ranks)
    share = Share(ranks.rank, ranks.world_size, len(own), given.num_valid)
    dense, pooled, labels, weights = (tensor[own] for tensor in given.rows())
    none = torch.empty(0, dtype=torch.int64)
    batch = DeviceBatch(0, dense, JaggedIds(none, none.view(0, 0)), labels, weights, weights, given.num_valid)
    divisor = given.num_valid * given.mean_weight
    dense_pass = DensePass(PartClock(), model, estimator, given.chunk_size, given.is_bf16)
    dense_pass(batch, PlainBlock(pooled), share, divisor, is_whole=False)
    sums.start_all_reduce(with_extra_sums=estimator.is_measuring).wait()
    sums.gradient /= divisor
    moments = estimator.moments(given.num_valid, given.mean_weight)
    assert moments is not None
    return Measured(
        [part.clone() for part in sums.unflatten(moments.mean)],
        [part.clone() for part in sums.unflatten(moments.mean_square)],
        [part.clone() for part in sums.unflatten(moments.measured_mean)],
        moments.num_samples,
        moments.num_compared,
        moments.variance(),
        moments.noise([parameter.numel() for parameter in parameters]),
    )


def gradients_of_samples(given: Given) -> list[torch.Tensor]:
    """[n, …] by parameter, in float64: of each valid sample's weighted loss over the mean weight, one at a time."""
    model = given.build().double()
    dense, pooled, labels, weights = (tensor.double() for tensor in given.rows())
    found: list[list[torch.Tensor]] = []
    for i in range(given.num_valid):
        logits = model(dense[i : i + 1], pooled[i : i + 1])
        loss = F.binary_cross_entropy_with_logits(logits, labels[i : i + 1], weight=weights[i : i + 1], reduction="sum")
        found.append([g / given.mean_weight for g in torch.autograd.grad(loss, list(model.parameters()))])
    return [torch.stack(of_parameter) for of_parameter in zip(*found, strict=True)]
