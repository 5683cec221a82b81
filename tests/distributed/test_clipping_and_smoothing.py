"""Gradients of limited norm and smoothed labels against their formulas in float64, with graphs, ranks and chunks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dlrm.config import PreconditionerConfig, VarianceReductionConfig
from tests.distributed.reference import GlobalBatch, ReferenceModel, draw_batches
from tests.distributed.test_variance_reduction import EXACT, largest_difference
from tests.distributed.training import TrainedModel, TrainingSetting, are_close, draw_initial_tables, train
from tests.dlrm.train.test_chunk_graph import GraphedModel, assert_same, train_graphed
from tests.rank_pool.pool import RankPools

MAX_NORM, SMOOTHING = 0.2, 0.1
SETTING = TrainingSetting(
    256,
    64,
    dense_rate=0.5,
    table_rate=0.1,
    dense_settings={"max_gradient_norm": MAX_NORM},
    label_smoothing=SMOOTHING,
)


def draw(number: int, num_empty: int = 50) -> list[GlobalBatch]:
    return draw_batches(number, 256, [rows for _, rows in SETTING.table_rows], num_empty_in_last=num_empty)


class ShorteningReference(ReferenceModel):
    """Steps along gradients of limited norm."""

    norms: tuple[float, ...] = ()

    def precondition(self, batch: GlobalBatch, gradients: list[torch.Tensor], rate: float) -> list[torch.Tensor]:
        del batch, rate
        norm = torch.sqrt(sum((gradient.square().sum() for gradient in gradients), start=torch.zeros(()).double()))
        self.norms += (float(norm),)
        return [gradient * min(1.0, MAX_NORM / float(norm)) for gradient in gradients]


def smooth(batch: GlobalBatch) -> GlobalBatch:
    return replace(batch, labels=np.where(batch.labels > 0, 1 - SMOOTHING / 2, SMOOTHING / 2))


@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_fifty_steps_follow_the_formulas(rank_pools: RankPools, world_size: int):
    batches = draw(50)
    reference = ShorteningReference(draw_initial_tables(SETTING), "sgd", SETTING.seed, SETTING.model)
    losses = [reference.step(smooth(batch), SETTING.dense_rate, SETTING.table_rate) for batch in batches]
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, SETTING, batches)
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        for name, expected in reference.model.state_dict().items():
            assert are_close(trained.dense[name], expected, 1e-4), name
    assert min(reference.norms) < MAX_NORM < max(reference.norms)


def test_one_launch_a_chunk_reads_smoothed_labels_too(rank_pools: RankPools):
    eager: list[TrainedModel] = rank_pools.of(1).run(train, SETTING, draw(5))
    graphed: list[GraphedModel] = rank_pools.of(1).run(train_graphed, SETTING, draw(5))
    assert graphed[0].num_replayed > 0
    assert_same(graphed[0].trained, eager[0])


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_after_variance_reduction_and_preconditioner_ranks_and_chunks_agree(rank_pools: RankPools, world_size: int):
    setting = replace(
        SETTING,
        dense_rate=0.01,
        dense_optimizer="adafactor",
        moments=EXACT,
        variance_reduction=VarianceReductionConfig(),
        preconditioner=PreconditionerConfig(damping=0.01),
    )
    one: TrainedModel = rank_pools.of(1).run(train, setting, draw(10))[0]
    several: list[TrainedModel] = rank_pools.of(world_size).run(train, replace(setting, chunk_size=32), draw(10))
    for trained in several:
        assert largest_difference(trained, one) < 1e-3
        assert all(torch.equal(trained.dense[name], value) for name, value in several[0].dense.items())
