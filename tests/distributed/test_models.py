"""Every architecture and pooling, and data with one kind of columns, trained on ranks, against the reference."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dlrm.config import ModelConfig
from sharding.jagged import JaggedIds
from tests.distributed.reference import GlobalBatch, add_lists_and_weights, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.training import TrainingSetting, assert_follows_reference
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools

SIZES = {"embedding_dim": 16, "bottom_mlp": [32, 16], "top_mlp": [32, 1]}
DOT = ModelConfig.model_validate(SIZES)
CROSS = ModelConfig.model_validate({**SIZES, "architecture": "dcn_v2", "cross_layers": 2, "cross_rank": 8})
SETTING = TrainingSetting(512, 100, "rowwise_adagrad", dense_rate=0.05, table_rate=0.01, mean_weight=1.8)
ROWS = [rows for _, rows in SETTING.table_rows]


def draw_list_batches() -> list[GlobalBatch]:
    """Some bags are empty, some hold an id twice; the last batch is short."""
    return add_lists_and_weights(draw_batches(5, 512, ROWS, seed=2, num_empty_in_last=300), ROWS)


def drop_dense(batches: list[GlobalBatch]) -> list[GlobalBatch]:
    return [replace(batch, dense=batch.dense[:, :0]) for batch in batches]


def drop_ids(batches: list[GlobalBatch]) -> list[GlobalBatch]:
    none = JaggedIds(np.empty(0, dtype=np.int64), np.empty((0, 512), dtype=np.int32))
    return [replace(batch, bags=none) for batch in batches]


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_means_of_lists_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int, plan: str):
    means = model.model_copy(update={"pooling": "mean"})
    # Adagrad would not see a gradient that is not divided.
    setting = replace(SETTING, model=means, plan=plan, table_optimizer="sgd", table_rate=3.0)
    assert_follows_reference(rank_pools, world_size, setting, draw_list_batches())


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_lists_empty_bags_and_weights_follow_the_reference(
    rank_pools: RankPools, model: ModelConfig, world_size: int, plan: str
):
    assert_follows_reference(rank_pools, world_size, replace(SETTING, model=model, plan=plan), draw_list_batches())


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_rows_without_dense_columns_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int):
    setting = replace(SETTING, model=model, num_dense=0)
    assert_follows_reference(rank_pools, world_size, setting, drop_dense(draw_list_batches()))


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("architecture", ["gdcn", "deepfm", "finalmlp", "masknet", "wukong"])
def test_every_architecture_follows_the_reference(rank_pools: RankPools, architecture: str, world_size: int):
    setting = replace(SETTING, model=make_small_model(architecture), dense_rate=0.02)
    assert_follows_reference(rank_pools, world_size, setting, draw_list_batches())


def test_one_categorical_column_alone_follows_the_reference(rank_pools: RankPools):
    setting = replace(SETTING, model=DOT, num_dense=0, table_rows=(("only", 50),), mean_weight=1.0)
    assert_follows_reference(rank_pools, 2, setting, drop_dense(draw_batches(5, 512, [50], seed=2)))


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_rows_without_tables_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int):
    setting = replace(SETTING, model=model, table_rows=())
    assert_follows_reference(rank_pools, world_size, setting, drop_ids(draw_list_batches()))


@pytest.mark.parametrize(
    ("setting", "batches"),
    [
        (
            replace(SETTING, model=CROSS.model_copy(update={"pooling": "mean"}), dense_optimizer="adam"),
            draw_list_batches(),
        ),
        (replace(SETTING, model=DOT, num_dense=0), drop_dense(draw_list_batches())),
        (replace(SETTING, model=DOT, table_rows=(), dense_optimizer="adam"), drop_ids(draw_list_batches())),
    ],
    ids=["dcn_v2 with means", "no dense columns", "no tables"],
)
@pytest.mark.parametrize("ranks", [pytest.param((2, 2), marks=pytest.mark.slow), (1, 2)])
def test_a_stopped_run_continues_as_an_uninterrupted_one(
    rank_pools: RankPools, tmp_path: Path, ranks: tuple[int, int], setting: TrainingSetting, batches: list[GlobalBatch]
):
    setting = replace(setting, dense_rate=0.01)
    straight: list[PartialRun] = rank_pools.of(ranks[0]).run(train_up_to, tmp_path / "straight", setting, batches, 5)
    rank_pools.of(ranks[0]).run(train_up_to, tmp_path / "stopped", setting, batches, 2)
    after: list[PartialRun] = rank_pools.of(ranks[1]).run(train_up_to, tmp_path / "stopped", setting, batches, 5)
    assert {run.started_at for run in after} == {2}
    tolerance = 0.0 if ranks[0] == ranks[1] else 1e-5
    for run in after:
        found, expected = torch.tensor(run.losses), torch.tensor(straight[0].losses[2:])
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=0)
