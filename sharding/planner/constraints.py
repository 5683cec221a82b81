"""The rules of a request: the rule that claims each table, and its option if the sharding type is fixed."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import (
    COLUMN_STEP,
    Enumerator,
    keep_whole,
    replicate,
    split_by_columns,
    split_by_grid,
    split_by_rows,
)
from sharding.planner.types import (
    COLUMN_TYPES,
    INT8_TYPES,
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
FIXED_BY_JOB = "set by the job"
"""Reason of an option whose type a rule or the request fixes."""


def make_initial_options(request: PlanRequest, costs: CostEstimator) -> list[ShardingOption]:
    """Return the option of each table that the search begins with. Raises PlanError if a rule cannot hold."""
    enumerator = Enumerator(request, costs)
    of_other_tables = Rule("*", request.plan)
    options: list[ShardingOption] = []
    for table, number in zip(request.tables, match_rules(request), strict=True):
        rule, field = (of_other_tables, "plan") if number is None else (request.rules[number], f"rules.{number}")
        if rule.type == "auto":
            options.append(enumerator.make_initial_option(table, find_allowed_ranks(request, table, rule, field)))
        else:
            options.append(_make_fixed_option(request, table, rule, rule.type, field))
    return options


def match_rules(request: PlanRequest) -> list[int | None]:
    """Return the number of the rule that claims each table; None if `request.plan` holds.

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
                f"{rule.pattern!r} claims no table: no name matches, or earlier rules claim the matches"
                f"{_format_case_hint(rule.pattern, names)}",
                valid=[f"a pattern that matches some of {_list_some(names)}"],
                field=f"rules.{number}.pattern",
            )
    return claims


def find_allowed_ranks(request: PlanRequest, table: Table, rule: Rule, field: str) -> Sequence[int]:
    """Return the ranks that a rule allows, in ascending order; a range where it allows all. Raises PlanError."""
    world_size = request.topology.world_size
    if rule.ranks is None:
        # A range, not a list: lists for thousands of tables and ranks would fill the memory.
        return range(world_size)
    if fault := _find_rank_fault(rule.ranks, world_size):
        valid = [f"different ranks from 0 to {world_size - 1}"]
        raise PlanError(fault, valid, f"{field}.ranks", table.name)
    return tuple(sorted(rule.ranks))


def _make_fixed_option(
    request: PlanRequest, table: Table, rule: Rule, kind: ShardingType, field: str
) -> ShardingOption:
    """Return the option of a table whose type is fixed. Raises PlanError.

    rule: the rule of this table; kind: its type. field: `plan`, or `rules.<number>`.
    """
    _check_optimizer(request, table, kind, field)
    _check_dtype(table, kind, field)
    ranks = find_allowed_ranks(request, table, rule, field)
    topology = request.topology
    match kind:
        case "data_parallel":
            if len(ranks) < topology.world_size:
                message = f"data_parallel keeps a copy of {table.name} on every rank"
                raise PlanError(message, ["leave ranks out", "another type"], f"{field}.ranks", table.name)
            blocks, has_fixed_ranks = replicate(table, topology.world_size), True
        case "table_wise":
            blocks, has_fixed_ranks = keep_whole(table, 0), False
        case "row_wise":
            blocks, has_fixed_ranks = split_by_rows(table, ranks), True
        case "column_wise":
            has_fixed_ranks = rule.ranks is not None
            blocks = split_by_columns(
                table, ranks if has_fixed_ranks else range(_count_column_shards(table, len(ranks)))
            )
        case "grid":
            blocks = split_by_grid(table, [list(of_node) for _, of_node in groupby(ranks, topology.get_node)])
            has_fixed_ranks = True
        case "table_row_wise" | "table_column_wise":
            return _make_one_node_option(request, table, rule, ranks, field)
    return ShardingOption(table, kind, blocks, ranks, has_fixed_ranks=has_fixed_ranks, reason=FIXED_BY_JOB)


def _make_one_node_option(
    request: PlanRequest, table: Table, rule: Rule, ranks: Sequence[int], field: str
) -> ShardingOption:
    """Return the option of table_row_wise or table_column_wise. Raises PlanError for ranks on several nodes."""
    topology = request.topology
    kind: ShardingType = "table_row_wise" if rule.type == "table_row_wise" else "table_column_wise"
    split = split_by_rows if kind == "table_row_wise" else split_by_columns
    if rule.ranks is not None:
        if len({topology.get_node(rank) for rank in ranks}) > 1:
            valid = [f"ranks of one node, such as {list(topology.list_ranks_of_node(topology.get_node(ranks[0])))}"]
            message = f"{kind} keeps {table.name} on one node, and ranks {list(ranks)} are on several nodes"
            raise PlanError(message, valid, f"{field}.ranks", table.name)
        return ShardingOption(table, kind, split(table, ranks), ranks, has_fixed_ranks=True, reason=FIXED_BY_JOB)
    num_shards = topology.ranks_per_node
    if kind == "table_column_wise":
        num_shards = _count_column_shards(table, num_shards)
    return ShardingOption(table, kind, split(table, range(num_shards)), ranks, is_on_one_node=True, reason=FIXED_BY_JOB)


def _count_column_shards(table: Table, max_shards: int) -> int:
    """Return the number of column ranges of a table if no rule names its ranks."""
    return max(1, min(max_shards, max(2, table.embedding_dim // MIN_COLUMNS), table.embedding_dim // COLUMN_STEP))


def _check_dtype(table: Table, kind: ShardingType, field: str) -> None:
    """Raise PlanError if rows of int8 would be split, or copied."""
    if table.dtype == "int8" and kind not in INT8_TYPES:
        raise PlanError(
            f"{kind} {'copies' if kind == 'data_parallel' else 'splits the rows of'} {table.name}, whose rows are int8 "
            "with one scale each",
            valid=[f"auto, {', '.join(INT8_TYPES)}", "rows of fp32"],
            field=field if field == "plan" else f"{field}.type",
            table=table.name,
        )


def _check_optimizer(request: PlanRequest, table: Table, kind: ShardingType, field: str) -> None:
    """Raise PlanError if shards of one row would share a number that the optimizer keeps for the whole row."""
    if kind not in COLUMN_TYPES or request.optimizer != "rowwise_adagrad":
        return
    others = ", ".join(other for other in SHARDING_TYPES if other not in COLUMN_TYPES)
    raise PlanError(
        f"{kind} splits the rows of {table.name}, and rowwise_adagrad keeps one number for a whole row",
        valid=[f"auto, {others}", "an optimizer that keeps a number for every weight, or none: adagrad or sgd"],
        field=field if field == "plan" else f"{field}.type",
        table=table.name,
    )


def _find_rank_fault(ranks: Sequence[int], world_size: int) -> str | None:
    """Return the fault of the ranks of a rule; None if absent."""
    if not ranks:
        return "names no rank"
    if len(set(ranks)) < len(ranks):
        return "names a rank twice"
    outside = [rank for rank in ranks if not 0 <= rank < world_size]
    return f"there is no rank {outside[0]}" if outside else None


def _format_case_hint(pattern: str, names: Sequence[str]) -> str:
    """Return a hint with the names that a pattern would match if case did not matter; empty if it matches any."""
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    meant = [name for name in names if fnmatchcase(name.casefold(), pattern.casefold())]
    return f"; names are case-sensitive: did you mean {_list_some(meant)}?" if meant else ""


def _list_some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:MAX_SHOWN])
    return f"{listed}, … ({len(names):,} in all)" if len(names) > MAX_SHOWN else listed
