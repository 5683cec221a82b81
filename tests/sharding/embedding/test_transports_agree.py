"""How far the memory and the network transport agree, by the native operators: see docs/architecture.md."""

from functools import cache
from typing import get_args

import pytest
import torch

from sharding.planner import ExchangeType, ShardingType
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import TYPES, make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, draw_batch, draw_three_batches
from tests.sharding.embedding.table_steps import TableLayout, TablesResult, look_up_and_update

SPLIT_BY_ROWS: tuple[ShardingType, ...] = ("row_wise", "table_row_wise", "grid")
WORLD_SIZE = 4
NARROW = [("table_wise", "fp16"), ("column_wise", "bf16"), ("row_wise", "fp16"), ("grid", "bf16")]
"""One plan of each kind of split with a format of the exchange."""


@cache
def run_both_transports(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType, max_length: int | None = None
) -> list[tuple[TablesResult, TablesResult]]:
    """Return the results of memory and network, rank by rank. max_length: of a bag; None for lists of all lengths."""
    batches = (
        draw_three_batches()
        if max_length is None
        else [draw_batch(max_length=max_length, seed=seed) for seed in (1, 2)]
    )
    plan = make_uniform_plan(TABLES, sharding_type, WORLD_SIZE)
    run = rank_pools.of(WORLD_SIZE).run
    by_transport = (
        run(look_up_and_update, TableLayout(plan, kind, "adagrad", exchange_dtype), batches)
        for kind in ("memory", "network")
    )
    return list(zip(*by_transport, strict=True))


@pytest.mark.parametrize(
    ("sharding_type", "exchange_dtype"),
    list_cases([*((kind, "fp32") for kind in TYPES), *NARROW], TYPES, get_args(ExchangeType)),
)
def test_the_same_gradients_move_tables_alike_to_the_bit(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType
):
    for memory, network in run_both_transports(rank_pools, sharding_type, exchange_dtype):
        assert memory.after.keys() == network.after.keys()
        assert all(torch.equal(weights, network.after[shard]) for shard, weights in memory.after.items())


@pytest.mark.parametrize(
    "sharding_type", list_cases([("table_wise",), ("row_wise",), ("grid",), ("data_parallel",)], TYPES)
)
def test_bags_of_one_id_are_looked_up_alike_to_the_bit(rank_pools: RankPools, sharding_type: ShardingType):
    for memory, network in run_both_transports(rank_pools, sharding_type, "fp32", max_length=1):
        assert all(map(torch.equal, memory.pooled, network.pooled))


@pytest.mark.parametrize("sharding_type", TYPES)
def test_lists_are_looked_up_alike_to_the_bit_but_for_rounding_where_rows_are_split(
    rank_pools: RankPools, sharding_type: ShardingType
):
    for memory, network in run_both_transports(rank_pools, sharding_type, "fp32"):
        for by_memory, by_network in zip(memory.pooled, network.pooled, strict=True):
            tolerance = 3e-7 * by_memory.abs().max().item() if sharding_type in SPLIT_BY_ROWS else 0.0
            torch.testing.assert_close(by_memory, by_network, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("sharding_type", "exchange_dtype", "dtype"),
    [("table_wise", "fp16", torch.float16), ("column_wise", "bf16", torch.bfloat16)],
)
def test_a_narrow_exchange_rounds_what_the_network_looks_up_and_memory_does_not(
    rank_pools: RankPools, sharding_type: ShardingType, exchange_dtype: ExchangeType, dtype: torch.dtype
):
    for memory, network in run_both_transports(rank_pools, sharding_type, exchange_dtype):
        # Batch 0, before any update, which both transports make alike.
        rounded = memory.pooled[0].to(dtype).float()
        assert not torch.equal(memory.pooled[0], rounded)
        assert torch.equal(network.pooled[0], rounded)
