"""Why tables find no room, and what would give them some: every proposal was tried."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sharding.plan.errors import PlanError
from sharding.plan.memory import Memory
from sharding.plan.placement import Split
from sharding.plan.plan import state_bytes
from sharding.plan.proposals import as_written, in_units, in_units_at_most, in_words
from sharding.plan.request import PlanRequest

MOST_GROWTH = 8
"""Of the nodes, in a proposal."""
LEAST_STEP = 8
"""Nodes are tried in steps of at least this part of what they are."""
FIRST_MARGIN = 64
"""Memory is first tried with this part of it above what tables need at least, then with twice as much, and so on."""

GRAIN = 128
"""The least is found to this part of it."""

IsPossible = Callable[[PlanRequest], bool]


def refusal(request: PlanRequest, splits: Sequence[Split], failed: Split, is_possible: IsPossible) -> PlanError:
    """The error for a request without a plan.

    splits: of every table, as the search began with them. failed: of the first table that found no room.
    """
    topology, table = request.topology, failed.table
    memory_bytes = _least_memory(request, splits, is_possible)
    short_bytes = None if memory_bytes is None else memory_bytes - topology.memory_bytes
    short = "" if short_bytes is None else f": {in_units(short_bytes, topology.device)} short"
    parts = _in_parts(failed)
    message = (
        f"table {table.name}{parts} finds no room: {in_units(_needs(request, failed), topology.device)} a rank of "
        f"weights, optimizer state and buffers, beside the other tables and what every rank needs, do not fit the "
        f"{in_units_at_most(topology.memory_bytes, topology.device)} of "
        f"{'each rank' if topology.device == 'cuda' else 'the node'}{short}"
    )
    tried = _proposals(request, memory_bytes, is_possible)
    return PlanError(message, [in_words(request, other) for other in tried], "", table.name, short_bytes)


def _in_parts(split: Split) -> str:
    if split.type == "data_parallel":
        return ", with a copy on every rank,"
    return "" if len(split.parts) == 1 else f" in {len(split.parts)} parts"


def _needs(request: PlanRequest, split: Split) -> int:
    """Bytes on a rank that has the largest part."""
    memory, table = _memory(request), split.table
    if split.type == "data_parallel":
        return memory.copy(table) + memory.stepping(table)
    part = split.parts[0]
    return memory.block(table, part.num_rows, part.num_columns) + memory.split(table, split.parts)


def _proposals(request: PlanRequest, memory_bytes: int | None, is_possible: IsPossible) -> Iterator[PlanRequest]:
    """Requests that have a plan."""
    if memory_bytes is not None:
        yield _with_memory(request, memory_bytes)
    for others in _alternatives(request):
        if (found := next(filter(is_possible, others), None)) is not None:
            yield found


def _alternatives(request: PlanRequest) -> Iterator[Iterator[PlanRequest]]:
    """Of each kind, the nearest first."""
    yield _with_more_nodes(request)
    if request.optimizer == "adagrad":
        yield (replace(request, optimizer=optimizer) for optimizer in ("rowwise_adagrad", "sgd"))
    if request.plan != "auto" or request.rules:
        yield iter([replace(request, plan="auto", rules=())])
    if request.exchange_dtype == "fp32":
        yield iter([replace(request, exchange_dtype="fp16")])
    yield _with_smaller_batches(request)


def _with_more_nodes(request: PlanRequest) -> Iterator[PlanRequest]:
    """With machines of the same kind, that divide the same batch. On CPUs there are none."""
    topology = request.topology
    if topology.device == "cpu":
        return
    bar = topology.num_nodes + 1
    for num_nodes in range(bar, MOST_GROWTH * topology.num_nodes + 1):
        if num_nodes >= bar and request.global_size % (num_nodes * topology.ranks_per_node) == 0:
            yield _chunk_in_share(replace(request, topology=replace(topology, num_nodes=num_nodes)))
            bar = num_nodes + max(1, num_nodes // LEAST_STEP)


def _with_smaller_batches(request: PlanRequest) -> Iterator[PlanRequest]:
    """Half the samples of a rank, and half of those."""
    world_size = request.topology.world_size
    share = request.global_size // world_size // 2
    while share:
        yield _chunk_in_share(replace(request, global_size=share * world_size))
        share //= 2


def _chunk_in_share(request: PlanRequest) -> PlanRequest:
    """A chunk is within the samples of one rank."""
    return replace(request, chunk_size=min(request.chunk_size, request.global_size // request.topology.world_size))


def _least_memory(request: PlanRequest, splits: Sequence[Split], is_possible: IsPossible) -> int | None:
    """Bytes with which there is a plan, as a document says them, the fewest but for GRAIN; None where even room for
    everything on each rank (on CPUs: each node) is not enough."""
    topology = request.topology
    needed = sum(
        split.table.weight_bytes + state_bytes(request.optimizer, split.table.num_rows, split.table.embedding_dim)
        for split in splits
    )
    least, most = max(needed // topology.num_pools, topology.memory_bytes), _everything_on_one(request, splits)

    def is_enough(num_bytes: int) -> bool:
        return is_possible(_with_memory(request, num_bytes))

    failed, margin = least, 1 + least // FIRST_MARGIN
    while not is_enough(enough := as_written(min(least + margin, max(least + 1, most)), topology.device)):
        if least + margin >= most:
            return None
        failed, margin = enough, 2 * margin
    while enough - failed > enough // GRAIN:
        between = as_written((failed + enough) // 2, topology.device)
        if not failed < between < enough:
            break
        if is_enough(between):
            enough = between
        else:
            failed = between
    return enough


def _everything_on_one(request: PlanRequest, splits: Sequence[Split]) -> int:
    """Bytes of all tables, as the search began with them, in one memory; no placement needs more."""
    memory, num_ranks = _memory(request), request.topology.ranks_per_pool
    copied = [split.table for split in splits if split.type == "data_parallel"]
    everywhere = sum(memory.everywhere(copied).values()) + sum(map(memory.copy, copied))
    parts = 0
    for split in splits:
        if split.type != "data_parallel":
            everywhere += memory.split(split.table, split.parts)
            parts += sum(memory.block(split.table, part.num_rows, part.num_columns) for part in split.parts)
    return parts + everywhere * num_ranks


def _with_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def _memory(request: PlanRequest) -> Memory:
    """With slices as large as they can be: never less than what is counted while a plan is sought."""
    return Memory(request, split_columns=0)
