"""Why tables find no room, and what would give them some: every proposal was tried."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from sharding.plan.errors import PlanError
from sharding.plan.memory import Memory
from sharding.plan.placement import Split
from sharding.plan.request import PlanRequest
from sharding.plan.split import whole

MOST_NODES = 4096

IsPossible = Callable[[PlanRequest], bool]


def refusal(request: PlanRequest, split: Split, is_possible: IsPossible) -> PlanError:
    """The error for a request without a plan. split: the first table that found no room."""
    memory, topology = _of_whole_tables(request), request.topology
    table, what = split.table, "each rank" if topology.device == "cuda" else "the node"
    part = split.parts[0]
    needs = memory.block(table, part.num_rows, part.num_columns) + memory.split(table, split.parts)
    parts = "" if len(split.parts) == 1 else f" in {len(split.parts)} parts"
    memory_bytes = _least_memory(request, is_possible)
    short_bytes = None if memory_bytes is None else memory_bytes - topology.memory_bytes
    short = "" if short_bytes is None else f": {short_bytes:,} bytes ({in_gb(short_bytes)}) short"
    message = (
        f"table {table.name}{parts} finds no room: {in_gb(needs)} a rank of weights, optimizer state and buffers, "
        f"beside the other tables and what every rank needs, do not fit the {in_gb(topology.memory_bytes)} of {what}"
        f"{short}"
    )
    return PlanError(message, list(_proposals(request, memory_bytes, is_possible)), "", table.name, short_bytes)


def in_gb(num_bytes: float) -> str:
    """Decimal, as memory of GPUs is sold."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:,} bytes"


def _proposals(request: PlanRequest, memory_bytes: int | None, is_possible: IsPossible) -> Iterator[str]:
    topology = request.topology
    what = "a GPU" if topology.device == "cuda" else "a node"
    if memory_bytes is not None:
        yield f"{in_gb(memory_bytes)} of memory {what}"
    if topology.device == "cuda" and (num_nodes := _fewest_nodes(request, is_possible)):
        yield f"{num_nodes * topology.ranks_per_node} ranks ({num_nodes} nodes x {topology.ranks_per_node})"
    if request.optimizer == "adagrad":
        for optimizer in ("rowwise_adagrad", "sgd"):
            if is_possible(replace(request, optimizer=optimizer)):
                yield f"table_optimizer {optimizer}, which keeps less"
                break
    if (request.plan != "auto" or request.rules) and is_possible(replace(request, plan="auto", rules=())):
        yield 'plan "auto" for all tables'
    if request.exchange_dtype == "fp32" and is_possible(replace(request, exchange_dtype="fp16")):
        yield "exchange_dtype fp16"
    size = request.global_size // 2
    while size >= topology.world_size:
        if is_possible(replace(request, global_size=size)):
            yield f"a batch of {size:,}, whose buffers are smaller"
            break
        size //= 4


def _least_memory(request: PlanRequest, is_possible: IsPossible) -> int | None:
    """Bytes with which there is a plan, the first that was found above what all tables together need; None where twice
    the largest table on every rank would not do."""
    memory, topology = _of_whole_tables(request), request.topology
    tables = [memory.block(table, table.num_rows, table.embedding_dim) for table in request.tables]
    everywhere = sum(memory.everywhere().values())
    everywhere += sum(memory.split(table, whole(table, 0)) for table in request.tables)
    everywhere *= topology.ranks_per_pool
    least = max(everywhere + sum(tables) // topology.num_pools, topology.memory_bytes)
    most = max(2 * (everywhere + max(tables)), 2 * least)
    margin = 1.0 / 256
    while (num_bytes := int(least * (1 + margin))) <= most:
        if is_possible(replace(request, topology=replace(topology, memory_bytes=num_bytes))):
            return num_bytes
        margin *= 2
    return None


def _fewest_nodes(request: PlanRequest, is_possible: IsPossible) -> int | None:
    """With more machines of the same kind and the same batch."""
    memory, topology = _of_whole_tables(request), request.topology
    tables = sum(memory.block(table, table.num_rows, table.embedding_dim) for table in request.tables)
    per_node = topology.memory_bytes * topology.num_pools // topology.num_nodes
    num_nodes = max(topology.num_nodes, tables // per_node)
    while num_nodes < MOST_NODES:
        num_nodes += 1 + num_nodes // 8
        size = max(request.global_size, num_nodes * topology.ranks_per_node)
        if is_possible(replace(request, topology=replace(topology, num_nodes=num_nodes), global_size=size)):
            return num_nodes
    return None


def _of_whole_tables(request: PlanRequest) -> Memory:
    """To begin with: none is split or copied."""
    return Memory(request, sum(table.embedding_dim for table in request.tables))
