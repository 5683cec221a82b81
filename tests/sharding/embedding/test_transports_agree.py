"""How far the memory and the network transport agree, by the own operators: see docs/architecture.md."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from sharding.planner import ShardingType
from tests.distributed.plans import TYPES, plan_of
from tests.distributed.rank_pool import RankPools
from tests.distributed.table_batches import TABLES, Bags, random_bags, three_batches
from tests.distributed.test_tables import TablesResult, TablesSetting, look_up_and_update

SPLIT_BY_ROWS: tuple[ShardingType, ...] = ("row_wise", "table_row_wise", "grid")
WORLD_SIZE = 4


@pytest.fixture(scope="module")
def rank_pools() -> Iterator[RankPools]:
    pools = RankPools()
    yield pools
    pools.close()


def by_memory_and_network(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: Any, batches: list[Bags]
) -> Iterator[tuple[TablesResult, TablesResult]]:
    """Of each rank."""
    plan = plan_of(TABLES, sharding_type, WORLD_SIZE)
    run = rank_pools.of(WORLD_SIZE).run
    by_way = (
        run(look_up_and_update, TablesSetting(plan, way, "adagrad", exchange_dtype), batches)
        for way in ("memory", "network")
    )
    return zip(*by_way, strict=True)


@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("sharding_type", TYPES)
def test_the_same_gradients_move_tables_alike_to_the_bit(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: Any
):
    for memory, network in by_memory_and_network(rank_pools, sharding_type, exchange_dtype, three_batches()):
        assert memory.after.keys() == network.after.keys()
        assert all(torch.equal(weights, network.after[place]) for place, weights in memory.after.items())


@pytest.mark.parametrize("sharding_type", TYPES)
def test_bags_of_one_id_are_looked_up_alike_to_the_bit(rank_pools: RankPools, sharding_type: ShardingType):
    bags = [random_bags(most=1, seed=seed) for seed in (1, 2)]
    for memory, network in by_memory_and_network(rank_pools, sharding_type, "fp32", bags):
        assert all(map(torch.equal, memory.pooled, network.pooled))


@pytest.mark.parametrize("sharding_type", TYPES)
def test_lists_are_looked_up_alike_to_the_bit_but_for_rounding_where_rows_are_split(
    rank_pools: RankPools, sharding_type: ShardingType
):
    for memory, network in by_memory_and_network(rank_pools, sharding_type, "fp32", three_batches()):
        for by_memory, by_network in zip(memory.pooled, network.pooled, strict=True):
            tolerance = 3e-7 * by_memory.abs().max().item() if sharding_type in SPLIT_BY_ROWS else 0.0
            torch.testing.assert_close(by_memory, by_network, rtol=0, atol=tolerance)


@pytest.mark.parametrize("sharding_type", ["table_wise", "column_wise", "table_column_wise"])
def test_an_fp16_exchange_rounds_what_the_network_looks_up_and_memory_does_not(
    rank_pools: RankPools, sharding_type: ShardingType
):
    for memory, network in by_memory_and_network(rank_pools, sharding_type, "fp16", three_batches()):
        # Before any update, which both ways make alike.
        assert not torch.equal(memory.pooled[0], memory.pooled[0].half().float())
        assert torch.equal(network.pooled[0], memory.pooled[0].half().float())
