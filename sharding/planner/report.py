"""What is told of a plan: types, ranks, bytes, traffic, and an estimate of the step with its terms."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sharding.planner.cost_estimator import NO_TIME, CostEstimator, StepTime, Traffic
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.request import PlanRequest
from sharding.planner.topology import Topology
from sharding.planner.types import Plan, TablePlan, state_bytes

PART_OF_TERM = {
    "ids": "lookup",
    "lookup": "lookup",
    "forward": "lookup",
    "dense": "dense",
    "backward": "give_back",
    "update": "table_update",
    "copies_sum": "table_update",
    "all_reduce": "wait_for_sum",
}
"""The part of a run's clock that each term of the estimate counts to."""


@dataclass(frozen=True)
class TableReport:
    """One table. Lists go with `ranks`."""

    name: str
    num_rows: int
    embedding_dim: int
    ids_per_sample: float
    type: str
    reason: str
    ranks: list[int]
    weight_bytes: list[int]
    optimizer_bytes: list[int]
    buffer_bytes: list[int]
    blocks: list[tuple[int, int, int, int, int]]
    """Rank, first row, rows, first column, columns; empty where every rank has a copy."""
    exchange_bytes: Traffic
    """Of a step, all ranks together."""


@dataclass(frozen=True)
class RankReport:
    """One rank."""

    weight_bytes: int
    optimizer_bytes: int
    buffer_bytes: dict[str, int]
    """By what they are for."""
    total_bytes: int
    terms: dict[str, float]
    """Seconds of a step."""
    seconds: float


@dataclass(frozen=True)
class StepReport:
    """The estimated step: that of the slowest rank."""

    rank: int
    terms: dict[str, float]
    """Seconds."""
    parts: dict[str, float]
    """Seconds, as a run's clock counts them."""
    seconds: float
    samples_per_second: float
    is_dense_known: bool
    """Whether the time of the dense part is in it."""


@dataclass(frozen=True)
class PlanReport:
    """A plan and what it comes to."""

    world_size: int
    transport: str
    exchange_dtype: str
    optimizer: str
    global_size: int
    topology: Topology
    tables: list[TableReport]
    ranks: list[RankReport]
    memory_bytes: int
    """What a rank may use on GPUs; on CPUs the ranks of a node together."""
    largest_bytes: int
    """The most that is used of that on any."""
    exchange_bytes: Traffic
    """Of a step, all ranks together; dense gradients too."""
    imbalance: float
    """Of the seconds that tables take: the slowest rank over the mean."""
    imbalance_of_bytes: float
    """Of weights: the largest rank over the mean."""
    step: StepReport

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["topology"]["sources"] = dict(self.topology.sources)
        return found


def make_plan_report(request: PlanRequest, plan: Plan) -> PlanReport:
    """Counted from the blocks of `plan` alone."""
    costs, memory = CostEstimator(request), MemoryEstimator.of_plan(request, plan.tables)
    tables = [_table(request, costs, memory, table) for table in plan.tables]
    ranks = _ranks(request, costs, memory, plan, tables)
    topology = request.topology
    pools = [0] * topology.num_memory_domains
    for number, rank in enumerate(ranks):
        pools[topology.memory_domain(number)] += rank.total_bytes
    dense = Traffic(all_reduce=_sum_traffic(request))
    return PlanReport(
        world_size=topology.world_size,
        transport=request.transport,
        exchange_dtype=request.exchange_dtype,
        optimizer=request.optimizer,
        global_size=request.global_size,
        topology=topology,
        tables=tables,
        ranks=ranks,
        memory_bytes=topology.memory_bytes,
        largest_bytes=max(pools),
        exchange_bytes=Traffic.total([dense, *(table.exchange_bytes for table in tables)]),
        imbalance=_imbalance([seconds_of_tables(rank.terms, costs) for rank in ranks]),
        imbalance_of_bytes=plan.imbalance,
        step=_step(request, ranks),
    )


def seconds_of_tables(terms: dict[str, float], costs: CostEstimator) -> float:
    """Of a rank's terms, without what is not a table."""
    return sum(terms.values()) - costs.dense.seconds


def rank_loads(request: PlanRequest, costs: CostEstimator, tables: Sequence[TablePlan]) -> list[StepTime]:
    """Of each rank, what is not a table included."""
    common, own = costs.dense, [NO_TIME] * request.topology.world_size
    for table in tables:
        if table.is_replicated:
            common = common.plus(costs.replicated(table.table))
            continue
        common = common.plus(costs.everywhere(table.table, len({block.first_row for block in table.blocks})))
        for block in table.blocks:
            own[block.rank] = own[block.rank].plus(costs.block(table.table, block.num_rows, block.num_columns))
    return [common.plus(load) for load in own]


def _table(request: PlanRequest, costs: CostEstimator, memory: MemoryEstimator, plan: TablePlan) -> TableReport:
    table, ranks = plan.table, list(plan.ranks)
    place = {rank: number for number, rank in enumerate(ranks)}
    weights, states, buffers = ([0] * len(ranks) for _ in range(3))
    for block in plan.blocks:
        at = place[block.rank]
        weights[at] += block.weight_bytes
        states[at] += state_bytes(request.optimizer, block.num_rows, block.num_columns)
        if plan.is_replicated:
            buffers[at] += memory.copy_buffers(table)
        else:
            buffers[at] += memory.block_buffers(table, block.num_rows, block.num_columns)
    blocks = [(b.rank, b.first_row, b.num_rows, b.first_column, b.num_columns) for b in plan.blocks]
    return TableReport(
        name=table.name,
        num_rows=table.num_rows,
        embedding_dim=table.embedding_dim,
        ids_per_sample=table.ids_per_sample,
        type=plan.sharding_type,
        reason=plan.reason,
        ranks=ranks,
        weight_bytes=weights,
        optimizer_bytes=states,
        buffer_bytes=buffers,
        blocks=[] if plan.is_replicated else blocks,
        exchange_bytes=costs.traffic(plan),
    )


def _ranks(
    request: PlanRequest, costs: CostEstimator, memory: MemoryEstimator, plan: Plan, tables: Sequence[TableReport]
) -> list[RankReport]:
    world_size = request.topology.world_size
    weights, states, of_tables = ([0] * world_size for _ in range(3))
    for table in tables:
        for at, rank in enumerate(table.ranks):
            weights[rank] += table.weight_bytes[at]
            states[rank] += table.optimizer_bytes[at]
            of_tables[rank] += table.buffer_bytes[at]
    split = sum(memory.split(of.table, of.blocks) for of in plan.tables if not of.is_replicated)
    # Of all tables: in one memory gradients, which owners read, else what arrives of pooled embeddings and goes back.
    of_split = "gradients" if request.transport == "memory" else "slices"
    everywhere = memory.everywhere(of.table for of in plan.tables if of.is_replicated)
    found: list[RankReport] = []
    for rank, load in enumerate(rank_loads(request, costs, plan.tables)):
        buffers = {"tables": of_tables[rank], of_split: split, **everywhere}
        total = weights[rank] + states[rank] + sum(buffers.values())
        found.append(RankReport(weights[rank], states[rank], buffers, total, load._asdict(), load.seconds))
    return found


def _step(request: PlanRequest, ranks: Sequence[RankReport]) -> StepReport:
    slowest = max(range(len(ranks)), key=lambda rank: ranks[rank].seconds)
    terms, seconds = ranks[slowest].terms, ranks[slowest].seconds
    parts: dict[str, float] = {}
    for term, part in PART_OF_TERM.items():
        parts[part] = parts.get(part, 0.0) + terms[term]
    return StepReport(
        rank=slowest,
        terms=terms,
        parts=parts,
        seconds=seconds,
        samples_per_second=request.global_size / seconds if seconds else 0.0,
        is_dense_known=request.topology.flops is not None,
    )


def _sum_traffic(request: PlanRequest) -> float:
    world_size = request.topology.world_size
    return 2.0 * request.dense.sum_bytes * (world_size - 1) if request.transport == "network" else 0.0


def _imbalance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0
