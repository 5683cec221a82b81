"""Functions that ranks run: measure the moments of one batch as a step does, and sample by sample."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dlrm.config import ModelConfig, MomentsConfig
from dlrm.gradient_stats.estimator import Estimator, Share
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.gradient_stats.noise import StepNoise
from dlrm.model import make_dense_part
from dlrm.model.dense_part import DensePart
from dlrm.train.batch import DeviceBatch
from dlrm.train.dense_pass import DensePass, EagerChunk
from dlrm.train.profiler import PartClock
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.jagged import JaggedIds, SequenceShape

NUM_DENSE, NUM_FEATURES = 5, 3


@dataclass(frozen=True)
class MomentsSetting:
    """A model, and a global batch whose last rows are padding."""

    model: ModelConfig
    moments: MomentsConfig
    global_size: int
    num_valid: int
    chunk_size: int
    dtype: torch.dtype
    is_weighted: bool = False
    is_bf16: bool = False
    has_bf16_squares: bool = False
    sequences: tuple[SequenceShape, ...] = ()

    def build_model(self) -> DensePart:
        dims = [self.model.choose_table_dim(f"t{number}", 1) for number in range(NUM_FEATURES)]
        return make_dense_part(self.model, NUM_DENSE, NUM_FEATURES, 3, self.sequences, dims).to(self.dtype)

    def draw_rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw dense [B, N], pooled [B, F, D], labels [B] or [B, T] and weights [B]; padding rows have weight 0."""
        generator = torch.Generator().manual_seed(11)
        dense = torch.randn(self.global_size, NUM_DENSE, generator=generator, dtype=torch.float64)
        num_embeddings = NUM_FEATURES + sum(shape.max_length for shape in self.sequences)
        shape = (self.global_size, num_embeddings, self.model.embedding_dim)
        pooled = torch.randn(shape, generator=generator, dtype=torch.float64)
        self._cut_sequences(pooled, generator)
        labels = (torch.rand(self.global_size, generator=generator) < 0.3).double()
        weights = 3 * torch.rand(self.global_size, generator=generator, dtype=torch.float64)
        weights = weights * (weights > 0.5) if self.is_weighted else torch.ones_like(weights)
        weights[self.num_valid :] = 0.0
        # The reference computes in float64 with exactly the numbers that the model gets.
        dense, pooled, weights = (tensor.float().to(self.dtype) for tensor in (dense, pooled, weights))
        if self.model.num_tasks > 1:
            further = torch.rand(self.global_size, self.model.num_tasks - 1, generator=generator).round().double()
            further[torch.rand(further.shape, generator=generator) < 0.3] = torch.nan
            labels = torch.cat([labels[:, None], further], dim=1)
        return dense, pooled, labels.to(self.dtype), weights

    def _cut_sequences(self, pooled: torch.Tensor, generator: torch.Generator) -> None:
        """Leave out the first positions of sequences, up to all of them."""
        first = NUM_FEATURES
        for sequence in self.sequences:
            num_empty = torch.randint(0, sequence.max_length + 1, (self.global_size, 1), generator=generator)
            is_empty = torch.arange(sequence.max_length) < num_empty
            pooled[:, first : first + sequence.max_length][is_empty] = 0.0
            first += sequence.max_length

    def list_positions(self, ranks: Ranks) -> list[int]:
        """List the positions of this rank's share in the global batch: valid ones first, then by group.

        Sample i belongs to rank i mod W and to group i mod num_groups.
        """
        own = range(ranks.rank, self.global_size, ranks.world_size)
        num_groups = self.moments.num_groups if self.moments.estimator == "groups" else 1
        return sorted(own, key=lambda i: (i >= self.num_valid, i % num_groups, i))

    @property
    def mean_weight(self) -> float:
        return 1.7 if self.is_weighted else 1.0


@dataclass(frozen=True)
class MeasuredMoments:
    mean: list[torch.Tensor]
    mean_square: list[torch.Tensor]
    """By parameter."""
    measured_mean: list[torch.Tensor]
    num_samples: int
    num_compared: int
    variance: torch.Tensor
    noise: StepNoise


class FixedEmbeddings:
    """Pooled embeddings without a lookup."""

    scale = 1.0

    def __init__(self, pooled: torch.Tensor) -> None:
        self._pooled = pooled

    def read_chunk(self, start: int, end: int) -> torch.Tensor:
        return self._pooled[start:end].clone()

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> torch.Tensor:
        self._pooled[start:end] = gradient
        return torch.zeros(())


def measure_moments(ranks: Ranks, setting: MomentsSetting) -> MeasuredMoments:
    model = setting.build_model()
    parameters = list(model.parameters())
    sums = GradientBuffer(parameters, ranks, num_extra_sums=setting.moments.num_extra_sums)
    estimator: Estimator
    if setting.moments.estimator == "groups":
        estimator = GroupMoments(setting.moments, sums)
    else:
        estimator = ExactMoments(setting.moments, model, sums, is_bf16=setting.has_bf16_squares)
    own = setting.list_positions(ranks)
    share = Share(ranks.rank, ranks.world_size, len(own), setting.num_valid)
    dense, pooled, labels, weights = (tensor[own] for tensor in setting.draw_rows())
    none = torch.empty(0, dtype=torch.int64)
    batch = DeviceBatch(0, dense, JaggedIds(none, none.view(0, 0)), labels, weights, weights, setting.num_valid)
    divisor = setting.num_valid * setting.mean_weight
    dense_pass = DensePass(
        EagerChunk(PartClock(), model, setting.is_bf16, loss=model.loss), estimator, setting.chunk_size
    )
    dense_pass(batch, FixedEmbeddings(pooled), share, divisor, is_whole=False)
    sums.start_all_reduce(with_extra_sums=estimator.is_measuring).wait()
    sums.gradient /= divisor
    moments = estimator.compute_moments(setting.num_valid, setting.mean_weight)
    assert moments is not None
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    noise = moments.estimate_noise(moments.compute_sums(list(sizes.values())), list(sizes))
    assert noise is not None
    return MeasuredMoments(
        [part.clone() for part in sums.unflatten(moments.mean)],
        [part.clone() for part in sums.unflatten(moments.mean_square)],
        [part.clone() for part in sums.unflatten(moments.measured_mean)],
        moments.num_samples,
        moments.num_compared,
        moments.compute_variance(),
        noise,
    )


def compute_sample_gradients(setting: MomentsSetting) -> list[torch.Tensor]:
    """[n, …] by parameter, in float64: of each valid sample's weighted loss over the mean weight, one at a time."""
    model = setting.build_model().double()
    dense, pooled, labels, weights = (tensor.double() for tensor in setting.draw_rows())
    found: list[list[torch.Tensor]] = []
    for i in range(setting.num_valid):
        logits = model(dense[i : i + 1], pooled[i : i + 1])
        loss = weights[i] * sum_losses(setting.model, model, logits.reshape(-1), labels[i].reshape(-1))
        found.append([g / setting.mean_weight for g in torch.autograd.grad(loss, list(model.parameters()))])
    return [torch.stack(of_parameter) for of_parameter in zip(*found, strict=True)]


def sum_losses(config: ModelConfig, model: DensePart, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum the losses of one sample over the tasks that it has a label of, by the papers' formulas."""
    if config.num_tasks == 1:
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    assert config.tasks is not None
    is_uncertain = config.task_sharing is not None and config.task_sharing.loss_weighting == "uncertainty"
    s = dict(model.named_parameters())["loss.log_variances.offsets"] if is_uncertain else None
    total = torch.zeros((), dtype=torch.float64)
    for t, task in enumerate(config.tasks):
        if labels[t].isnan():
            continue
        if task.kind == "regression":
            loss = (labels[t] - logits[t]) ** 2 / 2
        else:
            p = 1 / (1 + torch.exp(-logits[t]))
            loss = -(labels[t] * p.log() + (1 - labels[t]) * (1 - p).log())
        total = total + task.weight * (loss if s is None else loss / s[t].exp() + s[t] / 2)
    return total
