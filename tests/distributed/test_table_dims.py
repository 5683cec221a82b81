"""Tables of different dimensions, trained on ranks, against the reference in float64; stopped and continued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dlrm.config import MomentsConfig, VarianceReductionConfig
from tests.distributed.reference import TABLE_ROWS, add_lists_and_weights, draw_batches
from tests.distributed.saving import PartialRun, train_up_to
from tests.distributed.test_sequences import draw_sequence_batches, make_setting
from tests.distributed.training import TrainingSetting, assert_follows_reference, train
from tests.dlrm.model.small_models import make_small_model
from tests.rank_pool.pool import RankPools

DIMS = {"large": 4, "other": 8, "s*": 12}
SHARDINGS = [
    ("memory", "row_wise"),
    ("memory", "data_parallel"),
    ("network", "column_wise"),
    ("torchrec", "table_wise"),
    ("torchrec", "row_wise"),
]


def make_narrow_setting(dims: dict[str, Any] = DIMS, architecture: str = "dlrm", **changes: Any) -> TrainingSetting:
    model = make_small_model(architecture, embedding_dim=16, bottom_mlp=[8, 16], table_dims=dims)
    return replace(TrainingSetting(256, 64, dense_rate=0.1, table_rate=0.1, model=model), **changes)


@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("transport", "plan"), SHARDINGS)
@pytest.mark.parametrize("dims", [DIMS, {"*": 8}], ids=["some narrow tables", "all narrow"])
def test_tables_of_different_dimensions_follow_the_reference(
    rank_pools: RankPools, world_size: int, transport: str, plan: str, dims: dict[str, Any]
):
    setting = make_narrow_setting(dims, plan=plan, transport=transport, mean_weight=1.8)
    batches = add_lists_and_weights(draw_batches(3, 256, list(TABLE_ROWS.values())), list(TABLE_ROWS.values()))
    assert_follows_reference(rank_pools, world_size, setting, batches)


@pytest.mark.parametrize("architecture", ["dcn_v2", "deepfm", "finalmlp", "wukong"])
def test_every_kind_of_interaction_takes_narrow_tables(rank_pools: RankPools, architecture: str):
    setting = make_narrow_setting(architecture=architecture, dense_rate=0.01, table_rate=0.01)
    assert_follows_reference(rank_pools, 1, setting, draw_batches(3, 256, list(TABLE_ROWS.values())))


@pytest.mark.parametrize("transport", ["memory", "network", "torchrec"])
def test_sequences_read_narrow_tables(rank_pools: RankPools, transport: str):
    setting = make_setting("din", transport=transport, plan="table_wise")
    model = make_small_model(
        "dlrm", embedding_dim=16, bottom_mlp=[8, 16], attention={"kind": "din"}, table_dims={"b": 8, "c": 4}
    )
    setting = replace(setting, model=model)
    assert_follows_reference(rank_pools, 2, setting, draw_sequence_batches(setting, 3, num_empty=100))


def test_dimensions_of_all_tables_stated_are_no_dimensions_stated(rank_pools: RankPools):
    stated, plain = make_narrow_setting({"*": 16}), make_narrow_setting()
    plain = replace(plain, model=plain.model.model_copy(update={"table_dims": None}))
    batches = draw_batches(3, 256, list(TABLE_ROWS.values()))
    (with_dims,), (without,) = (rank_pools.of(1).run(train, setting, batches) for setting in (stated, plain))
    assert with_dims.losses == without.losses
    assert with_dims.dense.keys() == without.dense.keys()


def test_a_stopped_run_with_narrow_tables_continues_bit_for_bit(rank_pools: RankPools, tmp_path: Path):
    methods = {"moments": MomentsConfig(every=2), "variance_reduction": VarianceReductionConfig()}
    setting = make_narrow_setting(table_optimizer="adagrad", dense_optimizer="adam", dense_rate=0.01, **methods)
    batches, pool = draw_batches(6, 256, list(TABLE_ROWS.values())), rank_pools.of(2)
    straight: list[PartialRun] = pool.run(train_up_to, tmp_path / "straight", setting, batches, 6)
    pool.run(train_up_to, tmp_path / "stopped", setting, batches, 3)
    after: list[PartialRun] = pool.run(train_up_to, tmp_path / "stopped", setting, batches, 6)
    for run, whole in zip(after, straight, strict=True):
        assert run.losses == whole.losses[3:]
        assert all(torch.equal(run.shards[name], weights) for name, weights in whole.shards.items())
