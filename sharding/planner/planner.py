"""The plan of a job's tables: search, and the types and reasons that it reports. Imports no torch."""

from dataclasses import replace

from sharding.planner.caching import place_tables
from sharding.planner.constraints import match_rules
from sharding.planner.diagnosis import NoPlanError, RoundMemory, diagnose
from sharding.planner.partitioner import NoRoomError, PlacementState
from sharding.planner.types import (
    Block,
    Plan,
    PlanError,
    PlanRequest,
    ShardingType,
    TablePlan,
)


def make_plan(request: PlanRequest, *, round_memory: RoundMemory = int) -> Plan:
    """Make the plan that answers `request`; it is a function of the request alone.

    An automatic plan keeps tables whole if that balances the ranks, splits tables that are too large for it, and
    replicates small ones if copies are cheaper than the exchange. No rank gets more than its memory holds: if GPUs have
    no room for all tables, some stay in the memory of the host. round_memory: function that rounds bytes up to an
    amount for the diagnosis to name; by default exact.

    Raises PlanError for a rule that cannot be kept, and NoPlanError, with a diagnosis, if tables do not fit.
    """
    _check_caches(request)
    if not request.tables:
        # A rule has to claim a table all the same.
        match_rules(request)
        return Plan(request.topology.world_size, ())
    try:
        placed = place_tables(request, is_improved=True)
    except NoRoomError as error:
        raise NoPlanError.from_diagnosis(diagnose(request, error, round_memory)) from None
    plans = (_make_table_plan(placed.request, placed.placement, number) for number in range(len(request.tables)))
    return Plan(request.topology.world_size, tuple(plans))


def _check_caches(request: PlanRequest) -> None:
    """Raise PlanError if the request says of caches what only a plan can, or what none can be."""
    if not 0 < request.min_cache_share <= 1:
        message = f"a cache cannot have {request.min_cache_share:g} of a table's rows"
        raise PlanError(message, ["more than 0, up to 1"], "min_cache_share")
    if cached := [table.name for table in request.tables if table.is_cached]:
        raise PlanError("the plan decides which tables are cached", ["cache_share = 1"], "tables", cached[0])


def _make_table_plan(request: PlanRequest, placement: PlacementState, number: int) -> TablePlan:
    option = placement.options[number]
    blocks = tuple(_with_rank(shard.block, shard.rank) for shard in placement.get_shards(number))
    plan = TablePlan(option.table, option.sharding_type, blocks, option.reason)
    if option.is_automatic:
        plan = _name_type(request, plan)
    if not plan.table.is_cached:
        return plan
    share = f"{100 * plan.table.cache_share:g} %"
    return replace(plan, reason=f"{plan.reason}; no room for all on GPUs: in the host's memory, {share} cached")


def _with_rank(block: Block, rank: int) -> Block:
    # Half the time of dataclasses.replace: a plan may have a million blocks.
    return Block(rank, block.first_row, block.num_rows, block.first_column, block.num_columns)


def _name_type(request: PlanRequest, plan: TablePlan) -> TablePlan:
    """Return the plan with the sharding type that its ranks amount to, and the reason for it.

    plan.reason: the reason why the table is split, if that is not speed.
    """
    topology = request.topology
    if topology.world_size == 1:
        return replace(plan, reason="the only rank")
    if plan.sharding_type == "data_parallel":
        return replace(plan, reason="small: a copy on every rank is cheaper than the exchange")
    if plan.sharding_type == "table_wise":
        return replace(plan, reason="whole: balances the ranks")
    is_on_one_node = len({topology.get_node(rank) for rank in plan.ranks}) == 1 and topology.num_nodes > 1
    names: dict[ShardingType, ShardingType] = {"row_wise": "table_row_wise", "column_wise": "table_column_wise"}
    kind = names[plan.sharding_type] if is_on_one_node else plan.sharding_type
    return replace(plan, sharding_type=kind, reason=f"in {len(plan.blocks)} shards: {_explain_split(request, plan)}")


def _explain_split(request: PlanRequest, plan: TablePlan) -> str:
    table, topology = plan.table, request.topology
    if table.count_bytes(request.optimizer) > topology.memory_bytes:
        return f"too large for one {'node' if topology.device == 'cpu' else 'GPU'}"
    return plan.reason or "balances the ranks"
