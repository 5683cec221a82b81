"""The noise scale where the true gradient and its covariance are known."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.data.order import BLOCKS_PER_WINDOW, MIN_WINDOW_ROWS, SampleOrder
from dlrm.gradient_stats.estimator import Estimator, Share
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.gradient_stats.layer_noise import LayerNoise
from dlrm.gradient_stats.noise import StepNoise
from dlrm.model.mlp import Linear
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankPools

NUM_DIMENSIONS, NUM_STEPS, BATCH = 1000, 200, 512
VARIANCES = torch.linspace(0.2, 1.8, NUM_DIMENSIONS, dtype=torch.float64)
MEAN = (VARIANCES.sum() / BATCH / NUM_DIMENSIONS).sqrt() * torch.ones(NUM_DIMENSIONS, dtype=torch.float64)
TRACE, SQUARED_NORM = VARIANCES.sum().item(), MEAN.square().sum().item()
"""Their ratio is BATCH: the gradient of a batch is half noise."""
EIGHTH, GROUPS = MomentsConfig(fraction=0.125), MomentsConfig(estimator="groups")


@dataclass(frozen=True)
class NoiseMoments:
    trace: float
    squared_norm: float
    drift: float = 0.0


class FrozenLayer:
    """A layer that never moves, measured in every step. The gradient of a sample is its input."""

    def __init__(
        self, ranks: Ranks, config: MomentsConfig, num_inputs: int, chunk_size: int, *, has_halves: bool = False
    ) -> None:
        model = nn.ModuleDict({"layer": Linear(num_inputs, 1, bias=False)})
        self._chunk_size = chunk_size
        self._layer = model["layer"]
        self._sums = GradientBuffer(list(model.parameters()), ranks, num_extra_sums=config.num_extra_sums + has_halves)
        self._estimator: Estimator
        if config.estimator == "groups":
            self._estimator = GroupMoments(config, self._sums, has_halves=has_halves)
        else:
            self._estimator = ExactMoments(config, model, self._sums, is_bf16=False, has_halves=has_halves)
        self._layer_noise = LayerNoise([("layer.weight", num_inputs)])
        self._steps: list[StepNoise] = []

    def step(self, samples: torch.Tensor, share: Share) -> None:
        """Measure one batch. samples [b, num_inputs]: of this rank; those beyond the valid ones are 0."""
        self._sums.zero()
        start = 0
        for run in self._estimator.begin_batch(share, is_whole=False):
            for first in range(start, run.end, self._chunk_size):
                self._layer(samples[first : min(first + self._chunk_size, run.end)]).sum().backward()
            run.at_end()
            start = run.end
        self._sums.start_all_reduce(with_extra_sums=True).wait()
        self._sums.gradient /= share.num_valid
        moments = self._estimator.compute_moments(share.num_valid, 1.0)
        assert moments is not None
        noise = self._layer_noise.estimate(moments, self._layer_noise.compute_sums(moments))
        assert noise is not None
        self._steps.append(noise)

    def average(self) -> NoiseMoments:
        """Average over the steps."""
        return NoiseMoments(
            sum(step.traces["layer"] for step in self._steps) / len(self._steps),
            sum(step.squared_norms["layer"] for step in self._steps) / len(self._steps),
            sum(step.drift for step in self._steps) / len(self._steps),
        )


def measure_noise(ranks: Ranks, config: MomentsConfig, num_valid: int) -> NoiseMoments:
    """Measure batches of normally distributed gradients."""
    layer = FrozenLayer(ranks, config, NUM_DIMENSIONS, chunk_size=100)
    size = BATCH // ranks.world_size
    share = Share(ranks.rank, ranks.world_size, size, num_valid)
    is_valid = (torch.arange(size) < share.count_among_first(num_valid)).double().unsqueeze(1)
    for number in range(NUM_STEPS):
        generator = torch.Generator().manual_seed(1000 * ranks.rank + number)
        noise = torch.randn(size, NUM_DIMENSIONS, generator=generator, dtype=torch.float64)
        layer.step(((MEAN + VARIANCES.sqrt() * noise) * is_valid).float(), share)
    return layer.average()


@pytest.mark.parametrize(
    "num_valid",
    [pytest.param(BATCH, id="full batches", marks=pytest.mark.slow), pytest.param(5 * 64 + 9, id="with a short group")],
)
@pytest.mark.parametrize(
    "config",
    [*(pytest.param(MomentsConfig(fraction=share), marks=pytest.mark.slow) for share in (1.0, 0.125)), GROUPS],
    ids=["exact", "exact on an eighth", "groups"],
)
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_noise_scale_is_the_known_one_within_five_percent(
    rank_pools: RankPools, world_size: int, config: MomentsConfig, num_valid: int
):
    for found in rank_pools.of(world_size).run(measure_noise, config, num_valid):
        assert found.trace == pytest.approx(TRACE, rel=0.02)
        assert found.trace / found.squared_norm == pytest.approx(TRACE / SQUARED_NORM, rel=0.05)


# Rows in order of time: those of a block are alike, and the batches of a window share what its blocks have in common.

ROW_BYTES = 1 << 20
"""So many that windows are as short as they get."""
NUM_COLUMNS, SHARED_BATCH = 32, 8192


@dataclass(frozen=True)
class TimeOrderedRows:
    """Rows whose columns are the gradients of a layer that never moves."""

    num_windows: int
    offset: int
    """Of each batch from the beginning of a window; below 0 it draws on two."""

    def draw_rows(self) -> torch.Tensor:
        """[n, columns]: half of the variance lies between blocks; the noise scale is about 3,000."""
        num_rows = self.num_windows * MIN_WINDOW_ROWS
        block_rows = MIN_WINDOW_ROWS // BLOCKS_PER_WINDOW
        generator = torch.Generator().manual_seed(7)
        of_blocks = torch.randn(num_rows // block_rows, NUM_COLUMNS, generator=generator)
        of_rows = torch.randn(num_rows, NUM_COLUMNS, generator=generator)
        return 0.025 + of_blocks.repeat_interleave(block_rows, dim=0) + of_rows

    def compute_noise(self) -> NoiseMoments:
        """Of all rows, by the textbook."""
        rows = self.draw_rows().double()
        return NoiseMoments(rows.var(dim=0, correction=0).sum().item(), rows.mean(dim=0).square().sum().item())


def measure_noise_over_windows(
    ranks: Ranks, config: MomentsConfig, data: TimeOrderedRows, num_batches: int
) -> NoiseMoments:
    """Measure batches, each from another window, in orders of several epochs."""
    rows = data.draw_rows()
    order = SampleOrder(len(rows), seed=3, row_bytes=ROW_BYTES)
    layer = FrozenLayer(ranks, config, NUM_COLUMNS, chunk_size=2048, has_halves=True)
    num_groups = config.num_groups if config.estimator == "groups" else ranks.world_size
    for number in range(num_batches):
        start = (number + 1) * MIN_WINDOW_ROWS + data.offset
        batch_rows = order.find_rows(start, start + SHARED_BATCH)
        groups = range(ranks.rank, num_groups, ranks.world_size)
        samples = rows[np.concatenate([batch_rows.row_numbers[group::num_groups] for group in groups])]
        layer.step(samples, Share(ranks.rank, ranks.world_size, len(samples), SHARED_BATCH, halves=batch_rows.halves))
    return layer.average()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "world_size", "data"),
    [
        (EIGHTH, 1, TimeOrderedRows(8, 0)),
        (GROUPS, 1, TimeOrderedRows(8, 0)),
        (EIGHTH, 2, TimeOrderedRows(8, 0)),
        (GROUPS, 2, TimeOrderedRows(8, 0)),
        # Over the ends of 2 windows, and of epochs.
        (EIGHTH, 1, TimeOrderedRows(2, -4096)),
        (GROUPS, 1, TimeOrderedRows(2, -4096)),
    ],
)
def test_the_noise_scale_of_ordered_rows_is_right_within_ten_percent(
    rank_pools: RankPools, config: MomentsConfig, world_size: int, data: TimeOrderedRows
):
    expected = data.compute_noise()
    for found in rank_pools.of(world_size).run(measure_noise_over_windows, config, data, 480):
        assert found.trace == pytest.approx(expected.trace, rel=0.05)
        # Half of the variance lies between blocks. A batch draws on the 1,024 of a window; of those over the ends of
        # windows every other one draws on all blocks, and the rest on 2,048.
        drift = NUM_COLUMNS / BLOCKS_PER_WINDOW
        assert found.drift == pytest.approx(drift / 4 if data.offset else drift, rel=0.15)
        assert found.trace / found.squared_norm == pytest.approx(expected.trace / expected.squared_norm, rel=0.1)
