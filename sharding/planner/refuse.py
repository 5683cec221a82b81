"""Why tables find no room, and what would give them some: every proposal was tried."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sharding.planner import proposals, shortage
from sharding.planner.amounts import as_written
from sharding.planner.constraints import types_by_table
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.errors import PlanError
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.partitioner import NoRoomError, PlacementState, ShardingOption
from sharding.planner.proposer import find_placement
from sharding.planner.request import PlanRequest
from sharding.planner.types import weight_and_state_bytes

MAX_NODE_GROWTH = 8
"""Of the nodes, in a proposal."""
MIN_NODE_STEP = 8
"""Nodes are tried in steps of at least this part of what they are."""
FIRST_MARGIN = 64
"""Memory is first tried with this part of it above what tables need at least, then with twice as much, and so on."""

GRAIN = 128
"""The least is found to this part of it."""
MIN_CHUNK = 256
"""Of samples, in a proposal: fewer are slow."""
ACTIVATIONS = "activations"
"""Of `Dense.memory_bytes`, what is in proportion to the samples of a chunk."""

IsPossible = Callable[[PlanRequest], bool]


def refusal(
    request: PlanRequest, splits: Sequence[ShardingOption], failed: ShardingOption, is_possible: IsPossible
) -> PlanError:
    """The error for a request without a plan.

    splits: of every table, as the search began with them. failed: of the first table that found no room.
    """
    are_automatic = [kind == "auto" for kind in types_by_table(request)]
    is_automatic, table = are_automatic[request.tables.index(failed.table)], failed.table.name
    message, memory_bytes, short_bytes = shortage.table_in_words(request, failed, is_automatic), None, None
    if found := _least_memory(request, splits, are_automatic):
        memory_bytes, placement = found
        short_bytes = memory_bytes - request.topology.memory_bytes
        if is_automatic and shortage.is_innocent(request, failed.table, short_bytes):
            message = f"the {len(splits)} tables find no room together"
        uses = shortage.fullest(request, splits, shortage.all_uses(request, placement))
        if blamed := shortage.rule_to_blame(request, splits, uses):
            table, message = blamed
        message += f": {shortage.in_words(request, uses, memory_bytes)}"
    tried = _proposals(request, memory_bytes, is_possible)
    return PlanError(message, [proposals.in_words(request, other) for other in tried], "", table, short_bytes)


def _proposals(request: PlanRequest, memory_bytes: int | None, is_possible: IsPossible) -> Iterator[PlanRequest]:
    """Requests that have a plan."""
    for others in _alternatives(request, memory_bytes):
        if (found := next(filter(is_possible, others), None)) is not None:
            yield found


def _alternatives(request: PlanRequest, memory_bytes: int | None) -> Iterator[Iterator[PlanRequest]]:
    """Of each kind, the nearest first. First of all what costs nothing."""
    yield _with_smaller_chunks(request)
    if memory_bytes is not None:
        yield iter([_with_memory(request, memory_bytes)])
    yield _with_more_nodes(request)
    if request.optimizer == "adagrad":
        yield (replace(request, optimizer=optimizer) for optimizer in ("rowwise_adagrad", "sgd"))
    if request.plan != "auto" or request.rules:
        yield iter([replace(request, plan="auto", rules=())])
    if request.exchange_dtype == "fp32":
        yield iter([replace(request, exchange_dtype="fp16")])
    yield _with_smaller_batches(request)


def _with_smaller_chunks(request: PlanRequest) -> Iterator[PlanRequest]:
    """Half the samples of a chunk, and half of those."""
    chunk_size = _chunk_size(request) // 2
    while chunk_size >= MIN_CHUNK:
        yield _with_chunk(request, chunk_size)
        chunk_size //= 2


def _with_more_nodes(request: PlanRequest) -> Iterator[PlanRequest]:
    """With machines of the same kind, that divide the same batch. On CPUs there are none."""
    topology = request.topology
    if topology.device == "cpu":
        return
    bar = topology.num_nodes + 1
    for num_nodes in range(bar, MAX_NODE_GROWTH * topology.num_nodes + 1):
        if num_nodes >= bar and request.global_size % (num_nodes * topology.ranks_per_node) == 0:
            yield _chunk_in_share(request, topology=replace(topology, num_nodes=num_nodes))
            bar = num_nodes + max(1, num_nodes // MIN_NODE_STEP)


def _with_smaller_batches(request: PlanRequest) -> Iterator[PlanRequest]:
    """Half the samples of a rank, and half of those."""
    world_size = request.topology.world_size
    share = request.global_size // world_size // 2
    while share:
        yield _chunk_in_share(request, global_size=share * world_size)
        share //= 2


def _chunk_in_share(request: PlanRequest, **changes: Any) -> PlanRequest:
    """A chunk is within the samples of one rank."""
    return _with_chunk(request, _chunk_size(replace(request, **changes)), **changes)


def _with_chunk(request: PlanRequest, chunk_size: int, **changes: Any) -> PlanRequest:
    """With the activations of such a chunk."""
    kept, before = request.dense.memory_bytes, _chunk_size(request)
    if ACTIVATIONS in kept:
        kept = kept | {ACTIVATIONS: math.ceil(kept[ACTIVATIONS] * chunk_size / before)}
    return replace(request, chunk_size=chunk_size, dense=replace(request.dense, memory_bytes=kept), **changes)


def _chunk_size(request: PlanRequest) -> int:
    """No more than the samples of a rank."""
    return min(request.chunk_size, request.global_size // request.topology.world_size)


def _least_memory(
    request: PlanRequest, splits: Sequence[ShardingOption], is_automatic: Sequence[bool]
) -> tuple[int, PlacementState] | None:
    """Bytes with which there is a plan, as a document says them, the fewest but for GRAIN, and where tables are then;
    None where even room for everything on each rank (on CPUs: each node) is not enough."""
    topology = request.topology
    needed = sum(weight_and_state_bytes(request.optimizer, of.table.num_rows, of.table.embedding_dim) for of in splits)
    least, most = max(needed // topology.num_memory_domains, topology.memory_bytes), _everything_on_one(request, splits)

    def placed(num_bytes: int) -> PlacementState | None:
        tried = _with_memory(request, num_bytes)
        try:
            return find_placement(tried, CostEstimator(tried), splits, is_automatic, is_improved=False)
        except NoRoomError:
            return None

    failed, margin = least, 1 + least // FIRST_MARGIN
    while (found := placed(enough := as_written(min(least + margin, max(least + 1, most)), topology.device))) is None:
        if least + margin >= most:
            return None
        failed, margin = enough, 2 * margin
    while enough - failed > enough // GRAIN:
        between = as_written((failed + enough) // 2, topology.device)
        if not failed < between < enough:
            break
        if (other := placed(between)) is not None:
            enough, found = between, other
        else:
            failed = between
    # What is free even on the fullest is not needed, as a rule.
    used = as_written(max(of.num_bytes for of in shortage.all_uses(request, found)), topology.device)
    if topology.memory_bytes < used < enough and (other := placed(used)) is not None:
        enough, found = used, other
    return enough, found


def _everything_on_one(request: PlanRequest, splits: Sequence[ShardingOption]) -> int:
    """Bytes of all tables, as the search began with them, in one memory; no placement needs more."""
    memory, num_ranks = _memory(request), request.topology.ranks_per_memory_domain
    copied = [split.table for split in splits if split.type == "data_parallel"]
    everywhere = sum(memory.everywhere(copied).values()) + sum(map(memory.copy, copied))
    parts = 0
    for split in splits:
        if split.type != "data_parallel":
            everywhere += memory.split(split.table, split.blocks)
            parts += sum(memory.block(split.table, part.num_rows, part.num_columns) for part in split.blocks)
    return parts + everywhere * num_ranks


def _with_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def _memory(request: PlanRequest) -> MemoryEstimator:
    """With slices as large as they can be: never less than what is counted while a plan is sought."""
    return MemoryEstimator(request, split_columns=0)
