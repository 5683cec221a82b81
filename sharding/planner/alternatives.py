"""Changes of a request without a plan that give it one."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sharding.planner.caching import CACHE_SHARES, count_host_bytes_by_node, place_tables
from sharding.planner.partitioner import NoRoomError
from sharding.planner.types import ACTIVATIONS, PlanError, PlanRequest

MAX_NODE_GROWTH = 8
"""Largest factor by which an alternative multiplies the number of nodes."""
MIN_NODE_STEP = 8
"""Each number of nodes that is tried exceeds the one before by at least 1/8 of it."""
MIN_CHUNK = 256
"""Samples of the smallest chunk that is tried: smaller ones are slow."""
USUAL_CACHE_SHARE = 0.2
"""Largest of the smallest caches that are tried, as a share of a table's rows; TorchRec's planner has the same."""
RESIDENT_SHARES = (0.5, 0.25, 0.125)
"""Shares of the memory that are tried for what is resident of tables in files."""

RoundMemory = Callable[[int], int]
"""Function that rounds bytes of memory up to what a job can state, such as a hundredth of a GiB."""


def find_alternatives(
    request: PlanRequest, memory_bytes: int | None, round_memory: RoundMemory
) -> Iterator[PlanRequest]:
    """Yield the first alternative of each kind that has a plan.

    memory_bytes: least memory of a domain that would do, if any. Amounts are tried as `round_memory` returns them.
    """
    for alternatives in _list_alternatives(request, memory_bytes, round_memory):
        if (found := next(filter(_has_plan, alternatives), None)) is not None:
            yield found


def _has_plan(request: PlanRequest) -> bool:
    """Whether a request has a plan, however slow."""
    try:
        place_tables(request, is_improved=False)
    except (NoRoomError, PlanError):
        return False
    return True


def _list_alternatives(
    request: PlanRequest, memory_bytes: int | None, round_memory: RoundMemory
) -> Iterator[Iterator[PlanRequest]]:
    """Yield the alternatives of each kind, the smallest change first. Smaller chunks cost nothing, and come first."""
    yield _with_smaller_chunks(request)
    yield _with_caches(request, round_memory)
    yield _with_tables_in_files(request, round_memory)
    if memory_bytes is not None:
        yield iter([with_memory(request, memory_bytes)])
    yield _with_more_nodes(request)
    if request.may_be_int8:
        yield iter([replace(request, tables=tuple(replace(table, dtype="int8") for table in request.tables))])
    if request.optimizer == "adagrad":
        yield (replace(request, optimizer=optimizer) for optimizer in ("rowwise_adagrad", "sgd"))
    if request.plan != "auto" or request.rules:
        yield iter([replace(request, plan="auto", rules=())])
    if request.exchange_dtype == "fp32":
        yield iter([replace(request, exchange_dtype="fp16")])
    yield _with_smaller_batches(request)


def with_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    """Return the request with memory domains of `num_bytes`."""
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def _with_caches(request: PlanRequest, round_memory: RoundMemory) -> Iterator[PlanRequest]:
    """Yield the request with room on the hosts for the tables that GPUs would cache, then with smaller caches as well.

    None if tables are not TorchRec's on GPUs.
    """
    topology = request.topology
    smaller = (share for share in CACHE_SHARES if share < request.min_cache_share and share <= USUAL_CACHE_SHARE)
    for share in (request.min_cache_share, *smaller):
        cached = replace(request, min_cache_share=share, topology=replace(topology, host_memory_bytes=sys.maxsize))
        if not cached.may_cache:
            continue
        try:
            placed = place_tables(cached, is_improved=False)
        except (NoRoomError, PlanError):
            continue
        needed = round_memory(max(count_host_bytes_by_node(placed.request, placed.placement)))
        host_memory_bytes = max(needed, topology.host_memory_bytes)
        yield replace(cached, topology=replace(topology, host_memory_bytes=host_memory_bytes))


def _with_tables_in_files(request: PlanRequest, round_memory: RoundMemory) -> Iterator[PlanRequest]:
    """Yield the request with tables in files, and half the memory for what is resident of them, a quarter, an eighth.

    None if tables cannot lie in files, or if no more is resident already.
    """
    if not request.may_lie_in_files:
        return
    for share in RESIDENT_SHARES:
        resident_bytes = round_memory(int(share * request.topology.memory_bytes))
        if request.resident_bytes is None or resident_bytes < request.resident_bytes:
            yield replace(request, resident_bytes=resident_bytes)


def _with_smaller_chunks(request: PlanRequest) -> Iterator[PlanRequest]:
    """Yield the request with half the samples of a chunk, half of those and so on, down to MIN_CHUNK."""
    chunk_size = _get_chunk_size(request) // 2
    while chunk_size >= MIN_CHUNK:
        yield _with_chunk(request, chunk_size)
        chunk_size //= 2


def _with_more_nodes(request: PlanRequest) -> Iterator[PlanRequest]:
    """Yield the request with more nodes of GPUs that divide the same batch; none on CPUs."""
    topology = request.topology
    if topology.device == "cpu":
        return
    next_nodes = topology.num_nodes + 1
    for num_nodes in range(next_nodes, MAX_NODE_GROWTH * topology.num_nodes + 1):
        if num_nodes >= next_nodes and request.global_size % (num_nodes * topology.ranks_per_node) == 0:
            yield _with_chunk_in_share(request, topology=replace(topology, num_nodes=num_nodes))
            next_nodes = num_nodes + max(1, num_nodes // MIN_NODE_STEP)


def _with_smaller_batches(request: PlanRequest) -> Iterator[PlanRequest]:
    """Yield the request with half the samples of a rank, half of those and so on."""
    world_size = request.topology.world_size
    share_size = request.global_size // world_size // 2
    while share_size:
        yield _with_chunk_in_share(request, global_size=share_size * world_size)
        share_size //= 2


def _with_chunk_in_share(request: PlanRequest, **changes: Any) -> PlanRequest:
    """Return the request with these changes, and a chunk no larger than the share of a rank that they leave."""
    return _with_chunk(request, _get_chunk_size(replace(request, **changes)), **changes)


def _with_chunk(request: PlanRequest, chunk_size: int, **changes: Any) -> PlanRequest:
    """Return the request with these changes, another chunk, and the activations of such a chunk."""
    kept, before = request.dense.memory_bytes, _get_chunk_size(request)
    if ACTIVATIONS in kept:
        kept = kept | {ACTIVATIONS: math.ceil(kept[ACTIVATIONS] * chunk_size / before)}
    return replace(request, chunk_size=chunk_size, dense=replace(request.dense, memory_bytes=kept), **changes)


def _get_chunk_size(request: PlanRequest) -> int:
    """Return the samples of a chunk, at most a rank's."""
    return min(request.chunk_size, request.global_size // request.topology.world_size)
