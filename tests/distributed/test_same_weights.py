"""Every rank computes the update of the dense parameters for itself: all get the same weights, bit for bit."""

import pytest
import torch

from dlrm.config import MomentsConfig, VarianceReductionConfig
from tests.distributed.reference import draw_batches
from tests.distributed.training import TrainedModel, TrainingSetting, train
from tests.rank_pool.pool import RankPools


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("optimizer", ["lamb", "soap", "schedule_free"])
def test_all_ranks_have_the_same_weights_after_twelve_steps(rank_pools: RankPools, optimizer: str, world_size: int):
    setting = TrainingSetting(
        256,
        64,
        "rowwise_adagrad",
        dense_rate=0.01,
        table_rate=0.02,
        dense_optimizer=optimizer,
        moments=MomentsConfig(every=2),
        variance_reduction=VarianceReductionConfig(),
    )
    batches = draw_batches(12, 256, [rows for _, rows in setting.table_rows])
    first, *others = rank_pools.of(world_size).run(train, setting, batches)
    assert first.losses[-1] != first.losses[0]
    for other in others:
        assert_same_dense(other, first)


def assert_same_dense(found: TrainedModel, expected: TrainedModel) -> None:
    assert found.dense.keys() == expected.dense.keys()
    for name, tensor in expected.dense.items():
        assert torch.equal(found.dense[name], tensor), name
