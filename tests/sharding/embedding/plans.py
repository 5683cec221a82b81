"""Plans of every sharding type, for the tables of tests."""

from collections.abc import Sequence
from typing import get_args

from sharding.planner import Block, Plan, ShardingType, Table, TablePlan
from sharding.planner.enumerator import keep_whole, replicate, split_by_columns, split_by_grid, split_by_rows

TYPES: tuple[ShardingType, ...] = get_args(ShardingType)
SPLIT_BY_COLUMNS: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
NODES: dict[int, list[list[int]]] = {1: [[0]], 2: [[0], [1]], 4: [[0, 1], [2, 3]]}
"""Ranks of each node, by world size; here they are nodes by name only."""


def list_types(optimizer: str) -> list[ShardingType]:
    """List the sharding types under which a table optimizer is the same method, however a table is split."""
    return [kind for kind in TYPES if optimizer != "rowwise_adagrad" or kind not in SPLIT_BY_COLUMNS]


def make_uniform_plan(tables: Sequence[Table], sharding_type: ShardingType, world_size: int) -> Plan:
    """Split every table in one way; owners and nodes take turns, and every other table begins with the last rank."""
    planned = [
        TablePlan(table, sharding_type, _make_blocks(table, sharding_type, number, world_size))
        for number, table in enumerate(tables)
    ]
    return Plan(world_size, tuple(planned))


def make_mixed_plan(tables: Sequence[Table], world_size: int) -> Plan:
    """Give the tables the sharding types in turn."""
    plans = [make_uniform_plan(tables, sharding_type, world_size) for sharding_type in TYPES]
    return Plan(world_size, tuple(plans[number % len(plans)].tables[number] for number in range(len(tables))))


def _make_blocks(table: Table, sharding_type: ShardingType, number: int, world_size: int) -> tuple[Block, ...]:
    turn = 1 if number % 2 == 0 else -1
    everywhere, nodes = range(world_size)[::turn], [node[::turn] for node in NODES[world_size]][::turn]
    node = nodes[number // 2 % len(nodes)]
    match sharding_type:
        case "table_wise":
            return keep_whole(table, number % world_size)
        case "data_parallel":
            return replicate(table, world_size)
        case "row_wise":
            return split_by_rows(table, everywhere)
        case "table_row_wise":
            return split_by_rows(table, node)
        case "column_wise":
            return split_by_columns(table, everywhere)
        case "table_column_wise":
            return split_by_columns(table, node)
        case "grid":
            return split_by_grid(table, nodes)
