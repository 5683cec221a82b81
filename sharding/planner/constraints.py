"""Applies the rules of a request: which rule claims a table, and the option that a fixed sharding type leaves it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import COLUMN_STEP, Enumerator, by_columns, by_grid, by_rows, on_every_rank, whole
from sharding.planner.types import (
    COLUMN_TYPES,
    SHARDING_TYPES,
    PlanError,
    PlanRequest,
    Rule,
    ShardingOption,
    ShardingType,
    Table,
)

MIN_COLUMNS = 32
"""Columns of a shard where the number of shards is open: narrower rows are slow to read."""
MAX_SHOWN = 5
"""Names of tables that an error lists."""
AS_ASKED = "as asked"
"""Reason of an option whose type a rule or the request fixes."""


def initial_options(request: PlanRequest, costs: CostEstimator) -> list[ShardingOption]:
    """Return the option of each table that the search begins with. Raises PlanError where a rule cannot hold."""
    enumerator = Enumerator(request, costs)
    of_other_tables = Rule("*", request.plan)
    options: list[ShardingOption] = []
    for table, number in zip(request.tables, rules_by_table(request), strict=True):
        rule, field = (of_other_tables, "plan") if number is None else (request.rules[number], f"rules.{number}")
        if rule.type == "auto":
            options.append(enumerator.initial_option(table, allowed_ranks(request, table, rule, field)))
        else:
            options.append(_fixed_option(request, table, rule, rule.type, field))
    return options


def rules_by_table(request: PlanRequest) -> list[int | None]:
    """Return the number of the rule that claims each table; None where `request.plan` holds.

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


def allowed_ranks(request: PlanRequest, table: Table, rule: Rule, field: str) -> Sequence[int]:
    """Return the ranks that a rule allows, in ascending order; a range where it allows all. Raises PlanError."""
    world_size = request.topology.world_size
    if rule.ranks is None:
        # No list: thousands of tables on thousands of ranks would fill the memory with them.
        return range(world_size)
    if fault := _fault_of_ranks(rule.ranks, world_size):
        valid = [f"different ranks from 0 to {world_size - 1}"]
        raise PlanError(fault, valid, f"{field}.ranks", table.name)
    return tuple(sorted(rule.ranks))


def _fixed_option(request: PlanRequest, table: Table, rule: Rule, kind: ShardingType, field: str) -> ShardingOption:
    """Return the option of a table whose type is fixed. Raises PlanError.

    rule: the rule of this table; kind: its type. field: `plan`, or `rules.<number>`.
    """
    _check_optimizer(request, table, kind, field)
    ranks = allowed_ranks(request, table, rule, field)
    topology = request.topology
    match kind:
        case "data_parallel":
            if len(ranks) < topology.world_size:
                valid = ["leave ranks out", "another type"]
                raise PlanError(f"a copy of {table.name} is on every rank", valid, f"{field}.ranks", table.name)
            blocks, has_fixed_ranks = on_every_rank(table, topology.world_size), True
        case "table_wise":
            blocks, has_fixed_ranks = whole(table, 0), False
        case "row_wise":
            blocks, has_fixed_ranks = by_rows(table, ranks), True
        case "column_wise":
            has_fixed_ranks = rule.ranks is not None
            blocks = by_columns(table, ranks if has_fixed_ranks else range(_num_column_shards(table, len(ranks))))
        case "grid":
            blocks = by_grid(table, [list(of_node) for _, of_node in groupby(ranks, topology.node)])
            has_fixed_ranks = True
        case "table_row_wise" | "table_column_wise":
            return _one_node_option(request, table, rule, ranks, field)
    return ShardingOption(table, kind, blocks, ranks, has_fixed_ranks=has_fixed_ranks, reason=AS_ASKED)


def _one_node_option(
    request: PlanRequest, table: Table, rule: Rule, ranks: Sequence[int], field: str
) -> ShardingOption:
    """Return the option of table_row_wise or table_column_wise. Raises PlanError for ranks on several nodes."""
    topology = request.topology
    kind: ShardingType = "table_row_wise" if rule.type == "table_row_wise" else "table_column_wise"
    split = by_rows if kind == "table_row_wise" else by_columns
    if rule.ranks is not None:
        if len({topology.node(rank) for rank in ranks}) > 1:
            valid = [f"ranks of one node, such as {list(topology.ranks_of_node(topology.node(ranks[0])))}"]
            message = f"{kind} keeps {table.name} on one node, and {list(ranks)} are on several"
            raise PlanError(message, valid, f"{field}.ranks", table.name)
        return ShardingOption(table, kind, split(table, ranks), ranks, has_fixed_ranks=True, reason=AS_ASKED)
    num_shards = topology.ranks_per_node
    if kind == "table_column_wise":
        num_shards = _num_column_shards(table, num_shards)
    return ShardingOption(table, kind, split(table, range(num_shards)), ranks, is_on_one_node=True, reason=AS_ASKED)


def _num_column_shards(table: Table, max_shards: int) -> int:
    """Return the number of column ranges of a table where no rule names its ranks."""
    return max(1, min(max_shards, max(2, table.embedding_dim // MIN_COLUMNS), table.embedding_dim // COLUMN_STEP))


def _check_optimizer(request: PlanRequest, table: Table, kind: ShardingType, field: str) -> None:
    """Raise PlanError where shards of a row would share what the optimizer keeps for the row."""
    if kind not in COLUMN_TYPES or request.optimizer != "rowwise_adagrad":
        return
    others = ", ".join(other for other in SHARDING_TYPES if other not in COLUMN_TYPES)
    raise PlanError(
        f"{kind} splits the rows of {table.name}, and rowwise_adagrad keeps one number for a whole row",
        valid=[f"auto, {others}", "an optimizer that keeps one for every weight or none: adagrad or sgd"],
        field=field if field == "plan" else f"{field}.type",
        table=table.name,
    )


def _fault_of_ranks(ranks: Sequence[int], world_size: int) -> str | None:
    """Return what is wrong with the ranks of a rule; None where nothing is."""
    if not ranks:
        return "names no rank"
    if len(set(ranks)) < len(ranks):
        return "names a rank twice"
    outside = [rank for rank in ranks if not 0 <= rank < world_size]
    return f"there is no rank {outside[0]} among {world_size}" if outside else None


def _in_another_case(pattern: str, names: Sequence[str]) -> str:
    """Return a hint with the names that a pattern would match if case did not count; empty where it matches any."""
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    meant = [name for name in names if fnmatchcase(name.casefold(), pattern.casefold())]
    return f"; upper and lower case differ: did you mean {_list_some(meant)}?" if meant else ""


def _list_some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:MAX_SHOWN])
    return f"{listed}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else listed
