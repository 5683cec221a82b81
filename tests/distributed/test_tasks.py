"""Training of several tasks on ranks: against a float64 reference, and the same for any number of ranks."""

from dataclasses import replace

import pytest
import torch

from dlrm.config import ModelConfig, MomentsConfig, VarianceReductionConfig
from dlrm.model.dense_part import DensePart
from tests.distributed import measure_moments
from tests.distributed.reference import GlobalBatch, ReferenceModel, add_task_labels, draw_batches
from tests.distributed.training import (
    TrainedModel,
    TrainingSetting,
    are_close,
    assemble_tables,
    draw_initial_tables,
    train,
)
from tests.dlrm.model.small_models import TASKS, make_small_model
from tests.rank_pool.pool import RankPools

MODEL = make_small_model("dlrm", **TASKS)
SETTING = TrainingSetting(128, 20, dense_rate=0.05, table_rate=0.1, model=MODEL)


def draw_task_batches(number: int, setting: TrainingSetting) -> list[GlobalBatch]:
    return add_task_labels(draw_batches(number, setting.global_size, [rows for _, rows in setting.table_rows], 1, 30))


class TaskReference(ReferenceModel):
    """The reference with the losses of several tasks, one sample after another."""

    def __init__(self, setting: TrainingSetting) -> None:
        super().__init__(draw_initial_tables(setting), setting.table_optimizer, setting.seed, setting.model)
        self._model_config: ModelConfig = setting.model

    def compute_loss(
        self, dense: torch.Tensor, pooled: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        assert weights is None
        assert isinstance(self.model, DensePart)
        logits = self.model(dense, pooled)
        losses = [
            measure_moments.sum_losses(self._model_config, self.model, *rows)
            for rows in zip(logits, labels, strict=True)
        ]
        return torch.stack(losses).sum()


@pytest.mark.parametrize("world_size", [1, 2])
def test_fifty_steps_follow_the_losses_of_the_papers(rank_pools: RankPools, world_size: int):
    batches = draw_task_batches(50, SETTING)
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, SETTING, batches)
    reference = TaskReference(SETTING)
    losses = [reference.step(batch, SETTING.dense_rate, SETTING.table_rate) for batch in batches]
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-4, atol=0)
        for name, expected in reference.model.state_dict().items():
            assert are_close(trained.dense[name], expected, 1e-3), name
    assert reference.model.state_dict()["loss.log_variances.offsets"].abs().min() > 0
    for name, table in assemble_tables([trained.shards for trained in by_rank], SETTING).items():
        assert are_close(table, reference.tables[name], 1e-3), name


def test_variance_reduction_of_several_tasks_is_the_same_on_one_rank_and_two(rank_pools: RankPools):
    setting = replace(
        SETTING,
        dense_optimizer="adam",
        dense_rate=0.01,
        moments=MomentsConfig(every=1),
        variance_reduction=VarianceReductionConfig(),
    )
    batches = draw_task_batches(8, setting)
    (alone,) = rank_pools.of(1).run(train, setting, batches)
    for other in rank_pools.of(2).run(train, setting, batches):
        torch.testing.assert_close(torch.tensor(other.losses), torch.tensor(alone.losses), rtol=1e-5, atol=0)
        for name, expected in alone.dense.items():
            assert are_close(other.dense[name], expected, 1e-4), name
