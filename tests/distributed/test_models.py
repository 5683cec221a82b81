"""Every architecture and pooling, and data without some kind of columns, trained on ranks, against the reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dlrm.config import ModelConfig
from dlrm.data.rows import Bags
from tests.distributed.rank_pool import RankPools
from tests.distributed.reference import GlobalBatch, Reference, random_batches, with_lists_and_weights
from tests.distributed.training import Setting, Trained, initial_tables, train, whole_tables

SIZES = {"embedding_dim": 16, "bottom_mlp": [32, 16], "top_mlp": [32, 1]}
DOT = ModelConfig.model_validate(SIZES)
CROSS = ModelConfig.model_validate({**SIZES, "architecture": "dcn_v2", "cross_layers": 2, "cross_rank": 8})
SETTING = Setting(512, 100, "rowwise_adagrad", dense_rate=0.05, table_rate=0.01, mean_weight=1.8)
ROWS = [rows for _, rows in SETTING.table_rows]


def lists() -> list[GlobalBatch]:
    """Some bags are empty, some hold an id twice; the last batch is short."""
    return with_lists_and_weights(random_batches(5, 512, ROWS, seed=2, num_empty_in_last=300), ROWS)


def assert_follows_reference(rank_pools: RankPools, world_size: int, setting: Setting, batches: list[GlobalBatch]):
    by_rank: list[Trained] = rank_pools.of(world_size).run(train, setting, batches)
    initial = initial_tables(setting)
    reference = Reference(
        initial, setting.table_optimizer, setting.seed, setting.model, setting.mean_weight, setting.num_dense
    )
    losses = [reference.step(batch, setting.dense_rate, setting.table_rate) for batch in batches]
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        assert trained.dense.keys() == reference.model.state_dict().keys()
        for name, expected in reference.model.state_dict().items():
            assert (trained.dense[name] - expected).abs().max() <= 1e-4 * expected.abs().max(), name
    for name, table in whole_tables([trained.shards for trained in by_rank], setting).items():
        expected = reference.tables[name].detach()
        assert (table - expected).abs().max() <= 1e-4 * expected.abs().max(), name
        assert not torch.equal(table, initial[name]), f"table {name} has not moved"


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_means_of_lists_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int, plan: str):
    means = model.model_copy(update={"pooling": "mean"})
    assert_follows_reference(rank_pools, world_size, replace(SETTING, model=means, plan=plan), lists())


@pytest.mark.parametrize("world_size", [1, 2])
def test_cross_layers_follow_the_reference(rank_pools: RankPools, world_size: int):
    assert_follows_reference(rank_pools, world_size, replace(SETTING, model=CROSS), lists())


def test_the_mean_of_one_id_is_the_id_itself(rank_pools: RankPools):
    batches = random_batches(3, 512, ROWS)
    sums, means = (replace(SETTING, model=CROSS.model_copy(update={"pooling": how})) for how in ("sum", "mean"))
    (of_sums,), (of_means,) = (rank_pools.of(1).run(train, setting, batches) for setting in (sums, means))
    assert of_sums.losses == of_means.losses


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_rows_without_dense_columns_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int):
    batches = [replace(batch, dense=batch.dense[:, :0]) for batch in lists()]
    assert_follows_reference(rank_pools, world_size, replace(SETTING, model=model, num_dense=0), batches)


def test_one_categorical_column_alone_follows_the_reference(rank_pools: RankPools):
    setting = replace(SETTING, model=DOT, num_dense=0, table_rows=(("only", 50),), mean_weight=1.0)
    batches = [replace(batch, dense=batch.dense[:, :0]) for batch in random_batches(5, 512, [50], seed=2)]
    assert_follows_reference(rank_pools, 2, setting, batches)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", [DOT, CROSS], ids=["dlrm", "dcn_v2"])
def test_rows_without_tables_follow_the_reference(rank_pools: RankPools, model: ModelConfig, world_size: int):
    none = Bags(np.empty(0, dtype=np.int64), np.empty((0, 512), dtype=np.int32))
    batches = [replace(batch, bags=none) for batch in lists()]
    assert_follows_reference(rank_pools, world_size, replace(SETTING, model=model, table_rows=()), batches)
