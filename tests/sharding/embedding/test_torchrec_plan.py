"""Our plans as TorchRec gets them."""

from dataclasses import replace

import pytest
import torch
from torchrec.distributed.types import CacheAlgorithm

from sharding.embedding.torchrec_plan import list_torchrec_tables, make_sharding_plan
from sharding.planner import Block, Plan, ShardingType, Table, TablePlan
from sharding.planner.enumerator import keep_whole, replicate, split_by_columns, split_by_grid, split_by_rows

TABLE = Table("a table", 10, 16)
WORLD_SIZE, RANKS_PER_NODE = 4, 2
NODES = [[0, 1], [2, 3]]
CPU = torch.device("cpu")


def plan_one(sharding_type: ShardingType, blocks: tuple[Block, ...], table: Table = TABLE) -> Plan:
    return Plan(WORLD_SIZE, (TablePlan(table, sharding_type, blocks),))


def describe(plan: Plan) -> list[tuple[str, list[tuple[int, list[int], list[int]]]]]:
    """Return of each of TorchRec's tables its type, and rank, offsets and sizes of its shards."""
    tables = list_torchrec_tables(plan, RANKS_PER_NODE)
    sharding = make_sharding_plan(tables, WORLD_SIZE, RANKS_PER_NODE, CPU)
    found: list[tuple[str, list[tuple[int, list[int], list[int]]]]] = []
    for table in tables:
        parameter = sharding[table.name]
        assert parameter.compute_kernel == "fused"
        assert parameter.ranks is not None
        shards = parameter.sharding_spec.shards  # pyright: ignore
        assert [shard.placement.rank() for shard in shards] == parameter.ranks
        placed = [(shard.placement.rank(), shard.shard_offsets, shard.shard_sizes) for shard in shards]
        found.append((parameter.sharding_type, placed))
    return found


@pytest.mark.parametrize(
    ("sharding_type", "blocks", "theirs"),
    [
        ("table_wise", keep_whole(TABLE, 3), "table_wise"),
        ("row_wise", split_by_rows(TABLE, range(4)), "row_wise"),
        ("column_wise", split_by_columns(TABLE, [2, 0, 3]), "column_wise"),
        ("table_row_wise", split_by_rows(TABLE, [2, 3]), "table_row_wise"),
        ("table_column_wise", split_by_columns(TABLE, [3, 2]), "table_column_wise"),
        ("grid", split_by_grid(TABLE, NODES), "grid_shard"),
    ],
)
def test_a_type_of_torchrecs_is_handed_over_as_that_type(
    sharding_type: ShardingType, blocks: tuple[Block, ...], theirs: str
):
    shards = [
        (block.rank, [block.first_row, block.first_column], [block.num_rows, block.num_columns]) for block in blocks
    ]
    assert describe(plan_one(sharding_type, blocks)) == [(theirs, shards)]


@pytest.mark.parametrize(
    ("sharding_type", "blocks"),
    [
        ("row_wise", split_by_rows(TABLE, [3, 2, 1, 0])),
        ("row_wise", split_by_rows(TABLE, [0, 1, 2])),
        ("table_row_wise", split_by_rows(TABLE, [3, 2])),
        ("grid", split_by_grid(TABLE, [[1, 0], [2, 3]])),
    ],
)
def test_every_block_of_a_layout_that_torchrec_has_not_is_a_table_on_its_rank(
    sharding_type: ShardingType, blocks: tuple[Block, ...]
):
    assert describe(plan_one(sharding_type, blocks)) == [
        ("table_wise", [(block.rank, [0, 0], [block.num_rows, block.num_columns])]) for block in blocks
    ]


def test_ranks_for_which_a_table_has_too_few_rows_get_shards_of_none():
    table = Table("few", 3, 8)
    plan = plan_one("row_wise", split_by_rows(table, range(4)), table)
    whole_width = [(rank, [rank, 0], [1, 8]) for rank in range(3)]
    assert describe(plan) == [("row_wise", [*whole_width, (3, [3, 0], [0, 8])])]


def test_a_table_in_one_block_is_whole_whatever_its_type():
    table = Table("one", 1, 8)
    assert describe(plan_one("row_wise", split_by_rows(table, range(4)), table)) == [
        ("table_wise", [(0, [0, 0], [1, 8])])
    ]


def test_replicated_tables_are_not_torchrecs():
    assert describe(plan_one("data_parallel", replicate(TABLE, WORLD_SIZE))) == []


def test_a_table_that_stays_in_the_hosts_memory_gets_a_cache_of_its_size():
    cached = replace(TABLE, cache_share=0.3)
    plan = Plan(
        WORLD_SIZE,
        (
            TablePlan(TABLE, "table_wise", keep_whole(TABLE, 0)),
            TablePlan(cached, "row_wise", split_by_rows(cached, range(4))),
        ),
    )
    whole, held = make_sharding_plan(
        list_torchrec_tables(plan, RANKS_PER_NODE), WORLD_SIZE, RANKS_PER_NODE, CPU
    ).values()
    assert (whole.compute_kernel, whole.cache_params) == ("fused", None)
    assert held.compute_kernel == "fused_uvm_caching"
    assert held.cache_params is not None
    assert (held.cache_params.algorithm, held.cache_params.load_factor) == (CacheAlgorithm.LRU, 0.3)
