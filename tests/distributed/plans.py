"""Plans of every sharding type, for the tables of tests."""

from collections.abc import Sequence
from typing import get_args

from sharding.planner import Plan, ShardingType, Table, TablePlan
from sharding.planner.enumerator import by_columns, by_grid, by_rows, whole
from sharding.planner.enumerator import on_every_rank as replicated

TYPES: tuple[ShardingType, ...] = get_args(ShardingType)
SPLIT_BY_COLUMNS: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid")
NODES: dict[int, list[list[int]]] = {1: [[0]], 2: [[0], [1]], 4: [[0, 1], [2, 3]]}
"""Ranks of each node, by world size; here they are nodes by name only."""


def types_for(optimizer: str) -> list[ShardingType]:
    """Those that an optimizer of tables is the same method under, however a table is split."""
    return [of_all for of_all in TYPES if optimizer != "rowwise_adagrad" or of_all not in SPLIT_BY_COLUMNS]


def plan_of(tables: Sequence[Table], sharding_type: ShardingType, world_size: int) -> Plan:
    """Every table split so; owners and nodes take turns, and every other table begins with the last rank."""
    planned = [
        TablePlan(table, sharding_type, _blocks(table, sharding_type, number, world_size))
        for number, table in enumerate(tables)
    ]
    return Plan(world_size, tuple(planned))


def mixed_plan(tables: Sequence[Table], world_size: int, *, types: Sequence[ShardingType] = TYPES) -> Plan:
    """A type for each table in turn."""
    plans = [plan_of(tables, sharding_type, world_size) for sharding_type in types]
    return Plan(world_size, tuple(plans[number % len(plans)].tables[number] for number in range(len(tables))))


def _blocks(table: Table, sharding_type: ShardingType, number: int, world_size: int):
    turn = 1 if number % 2 == 0 else -1
    everywhere, nodes = range(world_size)[::turn], [node[::turn] for node in NODES[world_size]][::turn]
    node = nodes[number // 2 % len(nodes)]
    match sharding_type:
        case "table_wise":
            return whole(table, number % world_size)
        case "data_parallel":
            return replicated(table, world_size)
        case "row_wise":
            return by_rows(table, everywhere)
        case "table_row_wise":
            return by_rows(table, node)
        case "column_wise":
            return by_columns(table, everywhere)
        case "table_column_wise":
            return by_columns(table, node)
        case "grid":
            return by_grid(table, nodes)
