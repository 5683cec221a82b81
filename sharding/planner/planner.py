"""Makes the plan of a job's tables. Imports no torch."""

from dataclasses import replace

from sharding.planner.constraints import allowed_ranks, fixed_option, rules_by_table, with_rank
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import Enumerator
from sharding.planner.errors import PlanError
from sharding.planner.partitioner import NoRoomError, PlacementState, ShardingOption
from sharding.planner.proposer import find_placement
from sharding.planner.refuse import refusal
from sharding.planner.request import PlanRequest, Rule
from sharding.planner.types import Plan, ShardingType, TablePlan, weight_and_state_bytes


def make_plan(request: PlanRequest) -> Plan:
    """The plan that answers `request`, which is a function of it alone.

    auto: whole tables where that balances the ranks, those too large for it in parts, copies of small ones where they
    are cheaper than the exchange. No rank gets more than its memory holds. Raises PlanError.
    """
    costs = CostEstimator(request)
    splits, is_automatic = _initial_options(request, costs)
    if not splits:
        return Plan(request.topology.world_size, ())
    try:
        placement = find_placement(request, costs, splits, is_automatic, is_improved=True)
    except NoRoomError as error:
        raise refusal(request, splits, error.split, _is_possible) from None
    plans = (_table_plan(request, placement, number, is_automatic[number]) for number in range(len(splits)))
    return Plan(request.topology.world_size, tuple(plans))


def _initial_options(request: PlanRequest, costs: CostEstimator) -> tuple[list[ShardingOption], list[bool]]:
    """A split of every table, and whether another one would do too. Raises PlanError."""
    choices = Enumerator(request, costs)
    of_others = Rule("*", request.plan)
    splits: list[ShardingOption] = []
    is_automatic: list[bool] = []
    for table, number in zip(request.tables, rules_by_table(request), strict=True):
        rule, field = (of_others, "plan") if number is None else (request.rules[number], f"rules.{number}")
        is_automatic.append(rule.type == "auto")
        if rule.type == "auto":
            splits.append(choices.initial_option(table, allowed_ranks(request, table, rule, field)))
        else:
            splits.append(fixed_option(request, table, rule, field))
    return splits, is_automatic


def _is_possible(request: PlanRequest) -> bool:
    """Whether there is a plan at all."""
    costs = CostEstimator(request)
    try:
        splits, is_automatic = _initial_options(request, costs)
        find_placement(request, costs, splits, is_automatic, is_improved=False)
    except (NoRoomError, PlanError):
        return False
    return True


def _table_plan(request: PlanRequest, placement: PlacementState, number: int, is_automatic: bool) -> TablePlan:
    split = placement.options[number]
    blocks = tuple(with_rank(part.block, part.rank) for part in placement.shards_of(number))
    found = TablePlan(split.table, split.type, blocks, split.reason)
    return _name_type(request, found) if is_automatic else found


def _name_type(request: PlanRequest, plan: TablePlan) -> TablePlan:
    """With the name of what was chosen, by where it is, and why. plan.reason: that it is in parts, if not for speed."""
    topology = request.topology
    if topology.world_size == 1:
        return replace(plan, reason="the only rank")
    if plan.sharding_type == "data_parallel":
        return replace(plan, reason="small: a copy on every rank is cheaper than the exchange")
    if plan.sharding_type == "table_wise":
        return replace(plan, reason="whole: balances the ranks")
    is_on_one_node = len({topology.node(rank) for rank in plan.ranks}) == 1 and topology.num_nodes > 1
    names: dict[ShardingType, ShardingType] = {"row_wise": "table_row_wise", "column_wise": "table_column_wise"}
    kind = names[plan.sharding_type] if is_on_one_node else plan.sharding_type
    return replace(plan, sharding_type=kind, reason=f"in {len(plan.blocks)} parts: {_why_in_parts(request, plan)}")


def _why_in_parts(request: PlanRequest, plan: TablePlan) -> str:
    table, topology = plan.table, request.topology
    if weight_and_state_bytes(request.optimizer, table.num_rows, table.embedding_dim) > topology.memory_bytes:
        return f"too large for one {'node' if topology.device == 'cpu' else 'GPU'}"
    return plan.reason or "balances the ranks"
