"""A plan: for each table how it is split, over which ranks, and the bytes that follow. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ShardingType = Literal["table_wise", "row_wise"]
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Table:
    """An embedding table of `num_rows` x `embedding_dim` fp32 weights that one feature reads."""

    name: str
    num_rows: int
    embedding_dim: int

    @property
    def weight_bytes(self) -> int:
        return self.num_rows * self.embedding_dim * FLOAT_BYTES


@dataclass(frozen=True)
class TablePlan:
    """Where one table lives."""

    table: Table
    sharding_type: ShardingType
    ranks: tuple[int, ...]
    """table_wise: its owner alone. row_wise: every rank, in order of rows."""


@dataclass(frozen=True)
class Plan:
    """Where every table lives, in the order of the tables."""

    world_size: int
    tables: tuple[TablePlan, ...]

    def weight_bytes(self, rank: int) -> int:
        """Bytes of table weights on `rank`; rows split by row are dealt out in equal blocks."""
        return sum(_bytes_on(plan, rank, self.world_size) for plan in self.tables)

    @property
    def imbalance(self) -> float:
        """Largest rank's bytes over the mean: 1 is perfect, as no tables are."""
        on_ranks = [self.weight_bytes(rank) for rank in range(self.world_size)]
        return max(on_ranks) * self.world_size / sum(on_ranks) if self.tables else 1.0


def make_plan(tables: Sequence[Table], world_size: int, choice: Literal["auto", "table_wise", "row_wise"]) -> Plan:
    """Split `tables`, which may be none, over `world_size` ranks.

    auto: a table that alone is more than one rank's fair share of all weights is split by rows, since no dealing
    out of whole tables can balance it; the others go whole, largest first, to the rank with the fewest of them, and
    of those to the one with the fewest bytes. Few before small: the exchange costs the same for a small table as for a
    large one, and it is what a step waits for.

    A table with too few rows for every rank to get one goes whole, whatever the choice: kernels fail on empty shards.
    """
    fair_share_bytes = sum(table.weight_bytes for table in tables) / world_size
    by_row = {
        table.name
        for table in tables
        if (choice == "row_wise" or (choice == "auto" and world_size > 1 and table.weight_bytes > fair_share_bytes))
        and _has_rows_for_all(table, world_size)
    }
    num_tables, num_bytes = [0] * world_size, [0] * world_size
    owners: dict[str, int] = {}
    for table in sorted(tables, key=lambda table: (-table.weight_bytes, table.name)):
        if table.name in by_row:
            continue
        owner = min(range(world_size), key=lambda rank: (num_tables[rank], num_bytes[rank], rank))
        owners[table.name] = owner
        num_tables[owner] += 1
        num_bytes[owner] += table.weight_bytes
    everywhere = tuple(range(world_size))
    return Plan(
        world_size,
        tuple(
            TablePlan(table, "row_wise", everywhere)
            if table.name in by_row
            else TablePlan(table, "table_wise", (owners[table.name],))
            for table in tables
        ),
    )


def _has_rows_for_all(table: Table, world_size: int) -> bool:
    """Whether equal blocks of rows leave some for the last rank."""
    return table.num_rows > -(-table.num_rows // world_size) * (world_size - 1)


def _bytes_on(plan: TablePlan, rank: int, world_size: int) -> int:
    if plan.sharding_type == "table_wise":
        return plan.table.weight_bytes if rank in plan.ranks else 0
    block = -(-plan.table.num_rows // world_size)
    num_rows = max(0, min(block, plan.table.num_rows - rank * block))
    return num_rows * plan.table.embedding_dim * FLOAT_BYTES
