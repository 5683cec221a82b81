"""How far the memory and the network transport agree, by the native operators: see docs/architecture.md."""

from collections.abc import Iterator
from typing import get_args

import pytest
import torch

from sharding.planner import ExchangeType, ShardingType
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import TYPES, make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, TableBatch, draw_batch, draw_three_batches
from tests.sharding.embedding.table_steps import TableLayout, TablesResult, look_up_and_update

SPLIT_BY_ROWS: tuple[ShardingType, ...] = ("row_wise", "table_row_wise", "grid")
WORLD_SIZE = 4


def run_both_transports(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType, batches: list[TableBatch]
) -> Iterator[tuple[TablesResult, TablesResult]]:
    """Yield the results of memory and network, rank by rank."""
    plan = make_uniform_plan(TABLES, sharding_type, WORLD_SIZE)
    run = rank_pools.of(WORLD_SIZE).run
    by_transport = (
        run(look_up_and_update, TableLayout(plan, kind, "adagrad", exchange_dtype), batches)
        for kind in ("memory", "network")
    )
    return zip(*by_transport, strict=True)


@pytest.mark.parametrize("exchange_dtype", get_args(ExchangeType))
@pytest.mark.parametrize("sharding_type", TYPES)
def test_the_same_gradients_move_tables_alike_to_the_bit(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType
):
    for memory, network in run_both_transports(rank_pools, sharding_type, exchange_dtype, draw_three_batches()):
        assert memory.after.keys() == network.after.keys()
        assert all(torch.equal(weights, network.after[shard]) for shard, weights in memory.after.items())


@pytest.mark.parametrize("sharding_type", TYPES)
def test_bags_of_one_id_are_looked_up_alike_to_the_bit(rank_pools: RankPools, sharding_type: ShardingType):
    batches = [draw_batch(max_length=1, seed=seed) for seed in (1, 2)]
    for memory, network in run_both_transports(rank_pools, sharding_type, "fp32", batches):
        assert all(map(torch.equal, memory.pooled, network.pooled))


@pytest.mark.parametrize("sharding_type", TYPES)
def test_lists_are_looked_up_alike_to_the_bit_but_for_rounding_where_rows_are_split(
    rank_pools: RankPools, sharding_type: ShardingType
):
    for memory, network in run_both_transports(rank_pools, sharding_type, "fp32", draw_three_batches()):
        for by_memory, by_network in zip(memory.pooled, network.pooled, strict=True):
            tolerance = 3e-7 * by_memory.abs().max().item() if sharding_type in SPLIT_BY_ROWS else 0.0
            torch.testing.assert_close(by_memory, by_network, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("exchange_dtype", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("sharding_type", ["table_wise", "column_wise", "table_column_wise"])
def test_a_narrow_exchange_rounds_what_the_network_looks_up_and_memory_does_not(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType, dtype: torch.dtype
):
    for memory, network in run_both_transports(rank_pools, sharding_type, exchange_dtype, draw_three_batches()):
        # Batch 0, before any update, which both transports make alike.
        rounded = memory.pooled[0].to(dtype).float()
        assert not torch.equal(memory.pooled[0], rounded)
        assert torch.equal(network.pooled[0], rounded)
