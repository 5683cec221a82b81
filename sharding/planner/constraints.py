"""The parts of a table whose type somebody has fixed, and what stands against it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Literal

from sharding.planner.blocks import COLUMN_STEP, by_columns, by_grid, by_rows, replicated, whole
from sharding.planner.errors import PlanError
from sharding.planner.partitioner import ShardingOption
from sharding.planner.request import PlanRequest, Rule
from sharding.planner.types import COLUMN_TYPES, SHARDING_TYPES, Block, ShardingType, Table

MIN_COLUMNS = 32
"""Of a part, where nobody says on how many ranks a table is: narrower rows are slow to read."""
MAX_SHOWN = 5
"""Names of tables, in a refusal."""


def rules_by_table(request: PlanRequest) -> list[int | None]:
    """The number of the rule that claims each table; None where `request.plan` holds.

    Raises PlanError for a rule that claims none.
    """
    claims = [
        next((number for number, rule in enumerate(request.rules) if fnmatchcase(table.name, rule.pattern)), None)
        for table in request.tables
    ]
    for number, rule in enumerate(request.rules):
        if number not in claims:
            names = [table.name for table in request.tables]
            raise PlanError(
                f"{rule.pattern!r} claims no table: none has such a name, or rules before it claim them"
                f"{_in_another_case(rule.pattern, names)}",
                valid=[f"a pattern of {_list_some(names)}"],
                field=f"rules.{number}.pattern",
            )
    return claims


def _in_another_case(pattern: str, names: Sequence[str]) -> str:
    """The names that a pattern would claim if case did not count, where it claims none for that reason alone."""
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    meant = [name for name in names if fnmatchcase(name.casefold(), pattern.casefold())]
    return f"; upper and lower case differ: did you mean {_list_some(meant)}?" if meant else ""


def _list_some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:MAX_SHOWN])
    return f"{listed}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else listed


def types_by_table(request: PlanRequest) -> list[ShardingType | Literal["auto"]]:
    """Of the rule that claims each table, or of `request.plan`. Raises PlanError."""
    return [request.plan if number is None else request.rules[number].type for number in rules_by_table(request)]


def fixed_option(request: PlanRequest, table: Table, rule: Rule, field: str) -> ShardingOption:
    """rule: of this table, with a type that is not auto. field: `plan`, or `rules.<number>`. Raises PlanError."""
    kind = rule.type
    assert kind != "auto", "somebody has fixed it"
    check_optimizer(request, table, kind, field)
    ranks = allowed_ranks(request, table, rule, field)
    topology = request.topology
    reason = "as asked"
    match kind:
        case "data_parallel":
            if len(ranks) < topology.world_size:
                valid = ["leave ranks out", "another type"]
                raise PlanError(f"a copy of {table.name} is on every rank", valid, f"{field}.ranks", table.name)
            return ShardingOption(
                table, kind, replicated(table, topology.world_size), ranks, is_fixed=True, reason=reason
            )
        case "table_wise":
            return ShardingOption(table, kind, whole(table, 0), ranks, reason=reason)
        case "row_wise":
            return ShardingOption(table, kind, by_rows(table, ranks), ranks, is_fixed=True, reason=reason)
        case "column_wise":
            if rule.ranks is not None:
                return ShardingOption(table, kind, by_columns(table, ranks), ranks, is_fixed=True, reason=reason)
            parts = by_columns(table, range(num_column_parts(table, len(ranks))))
            return ShardingOption(table, kind, parts, ranks, reason=reason)
        case "grid":
            parts = by_grid(table, [list(of_node) for _, of_node in groupby(ranks, topology.node)])
            return ShardingOption(table, kind, parts, ranks, is_fixed=True, reason=reason)
        case "table_row_wise" | "table_column_wise":
            return _on_one_node(request, table, rule, ranks, field)


def _on_one_node(request: PlanRequest, table: Table, rule: Rule, ranks: Sequence[int], field: str) -> ShardingOption:
    topology = request.topology
    kind: ShardingType = "table_row_wise" if rule.type == "table_row_wise" else "table_column_wise"
    divide = by_rows if kind == "table_row_wise" else by_columns
    if rule.ranks is not None:
        if len({topology.node(rank) for rank in ranks}) > 1:
            valid = [f"ranks of one node, such as {list(topology.ranks_of_node(topology.node(ranks[0])))}"]
            message = f"{kind} keeps {table.name} on one node, and {list(ranks)} are on several"
            raise PlanError(message, valid, f"{field}.ranks", table.name)
        return ShardingOption(table, kind, divide(table, ranks), ranks, is_fixed=True, reason="as asked")
    num_parts = topology.ranks_per_node
    if kind == "table_column_wise":
        num_parts = num_column_parts(table, num_parts)
    return ShardingOption(table, kind, divide(table, range(num_parts)), ranks, is_on_one_node=True, reason="as asked")


def num_column_parts(table: Table, most: int) -> int:
    """Into how many runs of columns a table goes where nobody says it."""
    return max(1, min(most, max(2, table.embedding_dim // MIN_COLUMNS), table.embedding_dim // COLUMN_STEP))


def check_optimizer(request: PlanRequest, table: Table, kind: ShardingType, field: str) -> None:
    """Raises PlanError where the parts of a row would share what the optimizer keeps of it."""
    if kind not in COLUMN_TYPES or request.optimizer != "rowwise_adagrad":
        return
    others = ", ".join(other for other in SHARDING_TYPES if other not in COLUMN_TYPES)
    raise PlanError(
        f"{kind} splits the rows of {table.name}, and rowwise_adagrad keeps one number for a whole row",
        valid=[f"auto, {others}", "an optimizer that keeps one for every weight or none: adagrad or sgd"],
        field=field if field == "plan" else f"{field}.type",
        table=table.name,
    )


def allowed_ranks(request: PlanRequest, table: Table, rule: Rule, field: str) -> Sequence[int]:
    """Those of the rule, in order, or a range of all: there may be more ranks than a list of each table has room for.
    Raises PlanError."""
    world_size = request.topology.world_size
    if rule.ranks is None:
        return range(world_size)
    if wrong := _wrong(rule.ranks, world_size):
        valid = [f"different ranks from 0 to {world_size - 1}"]
        raise PlanError(wrong, valid, f"{field}.ranks", table.name)
    return tuple(sorted(rule.ranks))


def _wrong(ranks: Sequence[int], world_size: int) -> str | None:
    if not ranks:
        return "names no rank"
    if len(set(ranks)) < len(ranks):
        return "names a rank twice"
    outside = [rank for rank in ranks if not 0 <= rank < world_size]
    return f"there is no rank {outside[0]} among {world_size}" if outside else None


def with_rank(block: Block, rank: int) -> Block:
    return Block(rank, block.first_row, block.num_rows, block.first_column, block.num_columns)
