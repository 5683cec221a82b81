"""The report of a plan: types, ranks, bytes, traffic, and an estimate of the step with its terms."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sharding.planner.cache_size import (
    count_cache_bytes,
    count_cache_index_bytes,
    count_device_state_bytes,
    count_host_bytes,
)
from sharding.planner.cost_estimator import NO_TIME, CostEstimator, StepTime, Traffic
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.overlap import count_slices, hide_exchange, make_socket_request
from sharding.planner.types import Plan, PlanRequest, TablePlan, Topology, count_weight_and_state_bytes

PART_OF_TERM = {
    "ids": "lookup",
    "cache": "lookup",
    "lookup": "lookup",
    "forward": "lookup",
    "dense": "dense",
    "give_back": "give_back",
    "backward": "table_update",
    "update": "table_update",
    "copies_sum": "table_update",
    "all_reduce": "wait_for_sum",
}
"""Part of a step, as a run's clock measures it, that each term of the estimate belongs to."""


@dataclass(frozen=True)
class TableReport:
    """The report of one table. Lists of bytes have an entry for each of `ranks`."""

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
    cache_share: float
    """Share of its rows that GPUs cache, counted by `weight_bytes`; 1 if the table is not on the host."""
    host_bytes: list[int]
    """Bytes in the memory of the host."""
    file_bytes: list[int]
    """Bytes of the weights and state if they lie in files, and so not in the memory of the rank; else 0."""
    blocks: list[tuple[int, int, int, int, int]]
    """Shards as (rank, first row, rows, first column, columns); empty if every rank has a copy."""
    exchange_bytes: Traffic
    """Bytes that the table sends in a step, all ranks together."""


@dataclass(frozen=True)
class RankReport:
    """The report of one rank."""

    weight_bytes: int
    optimizer_bytes: int
    buffer_bytes: dict[str, int]
    """Bytes by use, such as `activations`."""
    host_bytes: int
    """Bytes of cached tables in the memory of the host; not in `total_bytes`."""
    total_bytes: int
    terms: dict[str, float]
    """Seconds of a step, by term."""
    seconds: float


@dataclass(frozen=True)
class StepReport:
    """The estimated step of the slowest rank."""

    rank: int
    terms: dict[str, float]
    """Seconds by term of the estimate."""
    parts: dict[str, float]
    """Seconds by part of a step, as a run's clock counts them."""
    seconds: float
    samples_per_second: float
    is_dense_known: bool
    """Whether `seconds` include the dense part."""


@dataclass(frozen=True)
class PlanReport:
    """The report of a plan."""

    world_size: int
    transport: str
    exchange_dtype: str
    optimizer: str
    global_size: int
    topology: Topology
    tables: list[TableReport]
    ranks: list[RankReport]
    weight_bytes: int
    """Bytes of the weights of all tables, copies included."""
    memory_bytes: int
    """Bytes of memory of a rank on GPUs; on CPUs of the ranks of a node together."""
    largest_bytes: int
    """Bytes that the fullest memory uses."""
    file_bytes: int
    """Bytes of disk that tables in files take, all ranks together."""
    exchange_bytes: Traffic
    """Bytes that travel in a step, all ranks together, dense gradients included."""
    imbalance: float
    """Seconds that tables take the slowest rank, over the mean of all ranks."""
    imbalance_of_bytes: float
    """Weight bytes of the fullest rank, over the mean of all ranks."""
    step: StepReport

    @property
    def cached_tables(self) -> list[TableReport]:
        """Tables in the memory of the host whose rows GPUs cache."""
        return [table for table in self.tables if table.cache_share < 1]

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        report = asdict(self)
        report["topology"]["sources"] = dict(self.topology.sources)
        return report


def make_plan_report(request: PlanRequest, plan: Plan) -> PlanReport:
    """Make the report of a plan, counted from its blocks alone."""
    costs, memory = CostEstimator(request), MemoryEstimator.from_plan(request, plan.tables)
    tables = [_report_table(request, costs, memory, table) for table in plan.tables]
    ranks = _report_ranks(request, memory, plan, tables)
    topology = request.topology
    by_domain = [0] * topology.num_memory_domains
    for number, rank in enumerate(ranks):
        by_domain[topology.get_memory_domain(number)] += rank.total_bytes
    dense = Traffic(all_reduce=_count_dense_traffic(request))
    return PlanReport(
        world_size=topology.world_size,
        transport=request.transport,
        exchange_dtype=request.exchange_dtype,
        optimizer=request.optimizer,
        global_size=request.global_size,
        topology=topology,
        tables=tables,
        ranks=ranks,
        weight_bytes=sum(map(plan.count_weight_bytes, range(topology.world_size))),
        memory_bytes=topology.memory_bytes,
        largest_bytes=max(by_domain),
        file_bytes=sum(sum(table.file_bytes) for table in tables),
        exchange_bytes=Traffic.sum([dense, *(table.exchange_bytes for table in tables)]),
        # The dense part takes every rank as long; it would hide how uneven the tables are.
        imbalance=_compute_imbalance([sum(rank.terms.values()) - costs.dense.seconds for rank in ranks]),
        imbalance_of_bytes=plan.imbalance,
        step=_report_step(request, ranks),
    )


def estimate_step_seconds(request: PlanRequest, plan: Plan) -> float:
    """Estimate the seconds of a step on the slowest rank, for tables placed as in `plan`."""
    return max(time.seconds for time in _estimate_step_times(request, plan.tables))


def _estimate_step_times(request: PlanRequest, tables: Sequence[TablePlan]) -> list[StepTime]:
    """Return the time of a step on each rank, the dense part included."""
    times = _sum_step_times(request, tables)
    if request.transport != "network" or not request.is_exchanged or request.topology.device != "cpu":
        return times
    sockets, num_slices = _sum_step_times(make_socket_request(request), tables), count_slices(request, tables)
    return [hide_exchange(time, of_sockets, num_slices) for time, of_sockets in zip(times, sockets, strict=True)]


def _sum_step_times(request: PlanRequest, tables: Sequence[TablePlan]) -> list[StepTime]:
    """Sum up the time of a step on each rank, every term as if it were alone."""
    costs = CostEstimator(request)
    common, own = costs.dense, [NO_TIME] * request.topology.world_size
    for plan in tables:
        if plan.is_replicated:
            common = common.add(costs.estimate_copy(plan.table))
            continue
        num_row_ranges = len({block.first_row for block in plan.blocks})
        common = common.add(costs.estimate_split_table(plan.table, num_row_ranges))
        for block in plan.blocks:
            shard = costs.estimate_shard(plan.table, block.num_rows, block.num_columns)
            own[block.rank] = own[block.rank].add(shard)
    return [common.add(time) for time in own]


def _report_table(request: PlanRequest, costs: CostEstimator, memory: MemoryEstimator, plan: TablePlan) -> TableReport:
    table, ranks = plan.table, list(plan.ranks)
    index_of_rank = {rank: index for index, rank in enumerate(ranks)}
    weights, states, buffers, hosts, files = ([0] * len(ranks) for _ in range(5))
    for block in plan.blocks:
        index = index_of_rank[block.rank]
        shape = block.num_rows, block.num_columns
        weights[index] += count_cache_bytes(table.cache_share, *shape, table.dtype)
        states[index] += count_device_state_bytes(request.optimizer, table.cache_share, *shape)
        if request.is_in_files and not plan.is_replicated:
            files[index] += count_weight_and_state_bytes(request.optimizer, *shape, table.dtype)
        hosts[index] += count_host_bytes(request.optimizer, table.cache_share, *shape)
        if plan.is_replicated:
            buffers[index] += memory.estimate_copy_buffer_bytes(table)
        else:
            buffers[index] += memory.estimate_shard_buffer_bytes(table, *shape)
            buffers[index] += count_cache_index_bytes(table.cache_share, block.num_rows)
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
        cache_share=table.cache_share,
        host_bytes=hosts,
        file_bytes=files,
        blocks=[] if plan.is_replicated else blocks,
        exchange_bytes=costs.estimate_traffic(plan),
    )


def _report_ranks(
    request: PlanRequest, memory: MemoryEstimator, plan: Plan, tables: Sequence[TableReport]
) -> list[RankReport]:
    world_size = request.topology.world_size
    weights, states, table_buffers, hosts = ([0] * world_size for _ in range(4))
    for table in tables:
        for index, rank in enumerate(table.ranks):
            if not table.file_bytes[index]:
                weights[rank] += table.weight_bytes[index]
                states[rank] += table.optimizer_bytes[index]
            table_buffers[rank] += table.buffer_bytes[index]
            hosts[rank] += table.host_bytes[index]
    split_bytes = sum(
        memory.estimate_split_table_bytes(table.table, table.blocks) for table in plan.tables if not table.is_replicated
    )
    # In one memory these are gradients, which owners read; over a network slices of pooled embeddings and gradients;
    # TorchRec has those of the whole share.
    split_use = {"memory": "gradients", "network": "slices", "torchrec": "pooled embeddings"}[request.transport]
    common_bytes = memory.estimate_common_bytes(table.table for table in plan.tables if table.is_replicated)
    reports: list[RankReport] = []
    for rank, time in enumerate(_estimate_step_times(request, plan.tables)):
        buffers = {"tables": table_buffers[rank], split_use: split_bytes, **common_bytes}
        total = weights[rank] + states[rank] + sum(buffers.values())
        terms = time._asdict()
        reports.append(RankReport(weights[rank], states[rank], buffers, hosts[rank], total, terms, time.seconds))
    return reports


def _report_step(request: PlanRequest, ranks: Sequence[RankReport]) -> StepReport:
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


def _count_dense_traffic(request: PlanRequest) -> float:
    """Return the bytes that the all-reduce of dense gradients sends, all ranks together."""
    world_size = request.topology.world_size
    return 2.0 * request.dense.sum_bytes * (world_size - 1) if request.transport != "memory" else 0.0


def _compute_imbalance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0
