"""Sharded tables on one GPU. Two ranks share it over gloo, which copies what they exchange by way of the host."""

from dataclasses import replace

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.planner import ExchangeType, ShardingType
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, TableBatch, draw_three_batches
from tests.sharding.embedding.table_steps import OptimizerName, TableLayout, TablesResult, look_up_and_update
from tests.sharding.embedding.test_sharded_tables import assert_follow_reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda_device")]

CASES: list[tuple[int, ShardingType, OptimizerName]] = [
    *((1, "table_wise", optimizer) for optimizer in ("sgd", "rowwise_adagrad", "adagrad")),
    *((2, sharding_type, "adagrad") for sharding_type in list_types("adagrad")),
]


def step_on_the_gpu(ranks: Ranks, layout: TableLayout, batches: list[TableBatch]) -> TablesResult:
    return look_up_and_update(replace(ranks, device=torch.device("cuda", 0)), layout, batches)


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("world_size", "sharding_type", "optimizer"), CASES)
def test_three_updates_on_a_gpu_follow_the_float64_reference(
    rank_pools: RankPools,
    world_size: int,
    sharding_type: ShardingType,
    optimizer: OptimizerName,
    exchange_dtype: ExchangeType,
    id_dtype: torch.dtype,
):
    plan = make_uniform_plan(TABLES, sharding_type, world_size)
    layout = TableLayout(plan, "torchrec", optimizer, exchange_dtype, pooling="mean")
    batches = [replace(batch, ids=[ids.to(id_dtype) for ids in batch.ids]) for batch in draw_three_batches()]
    assert_follow_reference(rank_pools.of(world_size).run(step_on_the_gpu, layout, batches), layout, batches)
