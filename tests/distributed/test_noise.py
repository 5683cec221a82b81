"""The noise scale where the true gradient and its covariance are known."""

import pytest
import torch
from torch import nn

from dlrm.config import MomentsConfig
from dlrm.moments import ExactMoments, GroupMoments
from dlrm.moments.estimator import Estimator, Positions
from dlrm.noise import LayerNoise, NoiseState
from sharding.dense import FlatSums
from sharding.ranks import Ranks
from tests.distributed.rank_pool import RankPools

NUM_DIMENSIONS, NUM_STEPS, BATCH = 1000, 200, 512
VARIANCES = torch.linspace(0.2, 1.8, NUM_DIMENSIONS, dtype=torch.float64)
MEAN = (VARIANCES.sum() / BATCH / NUM_DIMENSIONS).sqrt() * torch.ones(NUM_DIMENSIONS, dtype=torch.float64)
TRACE, SQUARED_NORM = VARIANCES.sum().item(), MEAN.square().sum().item()
"""Their ratio is BATCH: the gradient of a batch is half noise."""
GROUPS = MomentsConfig(estimator="groups")


def frozen_run(ranks: Ranks, config: MomentsConfig, num_valid: int) -> NoiseState:
    """The mean over all steps of a layer that never moves; a sample's gradient is its input."""
    model = nn.ModuleDict({"layer": nn.Linear(NUM_DIMENSIONS, 1, bias=False)})
    sums = FlatSums(list(model.parameters()), ranks, num_extra=config.num_extra_sums)
    estimator: Estimator = (
        GroupMoments(config, sums, 100, BATCH, 1)
        if config.estimator == "groups"
        else ExactMoments(config, model, sums, 100, BATCH, 1, is_bf16=False)
    )
    layer_noise, state = LayerNoise([("layer.weight", NUM_DIMENSIONS)]), NoiseState()
    size = BATCH // ranks.world_size
    share = Positions(ranks.rank * size, (ranks.rank + 1) * size, num_valid)
    for number in range(NUM_STEPS):
        generator = torch.Generator().manual_seed(1000 * ranks.rank + number)
        noise = torch.randn(size, NUM_DIMENSIONS, generator=generator, dtype=torch.float64)
        samples = (MEAN + VARIANCES.sqrt() * noise).float()
        is_valid = torch.arange(share.start, share.end) < num_valid
        sums.zero()
        for start, end in estimator.chunks(share, number, is_whole=False):
            model["layer"](samples[start:end]).flatten().dot(is_valid[start:end].float()).backward()
        sums.start(with_extra=True).wait()
        sums.gradient /= num_valid
        moments = estimator.moments(num_valid, 1.0)
        assert moments is not None
        state.add(layer_noise(moments), kept=number / (number + 1))
    return state


@pytest.mark.parametrize("num_valid", [BATCH, 5 * 64 + 9], ids=["full batches", "batches with a short group"])
@pytest.mark.parametrize(
    "config",
    [MomentsConfig(fraction=1.0), MomentsConfig(fraction=0.125), GROUPS],
    ids=["exact", "exact on an eighth", "groups"],
)
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_noise_scale_is_the_known_one_within_five_percent(
    rank_pools: RankPools, world_size: int, config: MomentsConfig, num_valid: int
):
    for state in rank_pools.of(world_size).run(frozen_run, config, num_valid):
        assert state.noise_scale == pytest.approx(TRACE / SQUARED_NORM, rel=0.05)
        assert state.traces["layer"] == pytest.approx(TRACE, rel=0.02)
        assert state.gsnr is not None
        assert state.gsnr["layer"] == pytest.approx(SQUARED_NORM / TRACE, rel=0.05)
