"""Makes the plan of a job's tables. Imports no torch."""

from collections.abc import Sequence
from typing import Literal

from sharding.plan.plan import Plan, Table, TablePlan
from sharding.plan.split import by_rows, whole


def make_plan(tables: Sequence[Table], world_size: int, choice: Literal["auto", "table_wise", "row_wise"]) -> Plan:
    """Split `tables`, which may be none, over `world_size` ranks.

    auto: a table that alone is more than one rank's fair share of all weights is split by rows, since no dealing
    out of whole tables can balance it; the others go whole, largest first, to the rank with the fewest of them, and
    of those to the one with the fewest bytes. Few before small: the exchange costs the same for a small table as for a
    large one, and it is what a step waits for.
    """
    fair_share_bytes = sum(table.weight_bytes for table in tables) / world_size
    by_row = {
        table.name
        for table in tables
        if choice == "row_wise" or (choice == "auto" and world_size > 1 and table.weight_bytes > fair_share_bytes)
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
    return Plan(
        world_size,
        tuple(
            TablePlan(table, "row_wise", by_rows(table, range(world_size)))
            if table.name in by_row
            else TablePlan(table, "table_wise", whole(table, owners[table.name]))
            for table in tables
        ),
    )
