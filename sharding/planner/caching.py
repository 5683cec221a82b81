"""The choice of tables that stay in the memory of the host if GPUs have no room for all.

A GPU then caches rows of them (TorchRec's compute kernel fused_uvm_caching), and a step waits for the rows that its
cache has not. As few tables as possible are cached, tables with most rows for each id first: they save most memory for
each row fetched. Each gets the smallest cache that the request allows before the next is cached. The last one gets the
largest cache that memory has room for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sharding.planner.cache_size import count_device_bytes, count_host_bytes
from sharding.planner.constraints import make_initial_options
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.partitioner import NoRoomError, PlacementState
from sharding.planner.proposer import find_placement
from sharding.planner.types import COLUMN_TYPES, PlanRequest, ShardingOption, Table

CACHE_SHARES = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Shares of a table's rows that are tried, from the largest cache on."""


class NoHostRoomError(NoRoomError):
    """Error of tables that would fit if hosts had more memory: GPUs would cache them."""

    def __init__(self, option: ShardingOption, host_bytes: int) -> None:
        """Keep what is missing. host_bytes: bytes of the node that needs most, where as few as possible are cached."""
        self.host_bytes = host_bytes
        super().__init__(option)


@dataclass(frozen=True)
class CachedPlacement:
    """A placement of all tables, and the request; its tables say which of them are cached."""

    request: PlanRequest
    placement: PlacementState


def place_tables(request: PlanRequest, *, is_improved: bool) -> CachedPlacement:
    """Place all tables, cached ones among them only if there is no other way.

    is_improved: whether to search for a fast placement, and not only for one that fits. Raises PlanError, NoRoomError
    and, if only the memory of hosts is too small, NoHostRoomError.
    """
    try:
        return _place(request, is_improved=is_improved)
    except NoRoomError:
        if not request.may_cache:
            raise
    candidates = _list_candidates(request)
    try:
        cached_request = _find_least_cached(request, _select_for_hosts(request, candidates))
    except NoRoomError:
        # Without regard to the memory of hosts: the error then says how much they lack.
        cached_request = _find_least_cached(request, candidates)
    # Improved in any case: how cached shards are spread over nodes decides whether the memory of each is enough.
    placed = _place(cached_request, is_improved=True)
    by_node = count_host_bytes_by_node(cached_request, placed.placement)
    if max(by_node) > request.topology.host_memory_bytes:
        largest = max(placed.placement.options.values(), key=lambda option: option.table.weight_bytes)
        raise NoHostRoomError(largest, max(by_node))
    return placed


def cache_all(request: PlanRequest) -> PlanRequest:
    """Return the request with the smallest caches of all tables that may be cached; unchanged if none may.

    Raises PlanError.
    """
    if not request.may_cache:
        return request
    steps = _list_steps(request, _list_candidates(request))
    return _make_cached_request(request, steps)


def count_host_bytes_by_node(request: PlanRequest, placement: PlacementState) -> list[int]:
    """Return the bytes of each node's memory for cached tables, and for all that is not a table."""
    by_node = [request.dense.host_memory_bytes] * request.topology.num_nodes
    for number, option in placement.options.items():
        for shard in placement.get_shards(number):
            shape = option.table.cache_share, shard.block.num_rows, shard.block.num_columns
            by_node[request.topology.get_node(shard.rank)] += count_host_bytes(request.optimizer, *shape)
    return by_node


def _place(request: PlanRequest, *, is_improved: bool) -> CachedPlacement:
    costs = CostEstimator(request)
    options = make_initial_options(request, costs)
    return CachedPlacement(request, find_placement(request, costs, options, is_improved=is_improved))


def _find_least_cached(request: PlanRequest, candidates: Sequence[int]) -> PlanRequest:
    """Return the request that fits with as little cached as possible, of the tables with the numbers `candidates`.

    Raises NoRoomError if none does.
    """
    steps = _list_steps(request, candidates)
    # Bisection over the steps from nothing cached, which does not fit, to everything: each takes less memory.
    failed, enough = 0, len(steps)
    _place(_make_cached_request(request, steps), is_improved=False)
    while enough - failed > 1:
        between = (failed + enough) // 2
        try:
            _place(_make_cached_request(request, steps[:between]), is_improved=False)
            enough = between
        except NoRoomError:
            failed = between
    return _make_cached_request(request, steps[:enough])


def _list_candidates(request: PlanRequest) -> list[int]:
    """List the numbers of the tables that may be cached, the most memory saved for each row fetched first.

    Left out are copies by a rule, since every rank needs all rows in its own memory, and tables split by columns by a
    rule, since FBGEMM's cache has slots as wide as the widest shard.
    """
    options = make_initial_options(request, CostEstimator(request))
    numbers = [
        number
        for number, option in enumerate(options)
        if option.is_automatic or option.sharding_type not in ("data_parallel", *COLUMN_TYPES)
    ]
    return sorted(numbers, key=lambda number: _count_rows_per_id(request.tables[number]), reverse=True)


def _count_rows_per_id(table: Table) -> float:
    return table.num_rows / table.ids_per_sample if table.ids_per_sample else math.inf


def _select_for_hosts(request: PlanRequest, candidates: Sequence[int]) -> list[int]:
    """Return those candidates, in their order, for which the memory of all hosts together has room."""
    topology = request.topology
    free = (topology.host_memory_bytes - request.dense.host_memory_bytes) * topology.num_nodes
    selected: list[int] = []
    for number in candidates:
        table = request.tables[number]
        num_bytes = count_host_bytes(request.optimizer, request.min_cache_share, table.num_rows, table.embedding_dim)
        if num_bytes <= free:
            selected.append(number)
            free -= num_bytes
    return selected


def _list_steps(request: PlanRequest, candidates: Sequence[int]) -> list[tuple[int, float]]:
    """List the steps from nothing cached to the smallest caches of all candidates: a table, and the share it gets."""
    shares = [*(share for share in CACHE_SHARES if share > request.min_cache_share), request.min_cache_share]
    return [(number, share) for number in candidates for share in shares if _saves_memory(request, number, share)]


def _saves_memory(request: PlanRequest, number: int, share: float) -> bool:
    """Whether a cache takes less than the table: what finds a row in it may take more than a row of few columns."""
    table = request.tables[number]
    cached, whole = (
        count_device_bytes(request.optimizer, cache_share, table.num_rows, table.embedding_dim, table.dtype)
        for cache_share in (share, 1.0)
    )
    return cached < whole


def _make_cached_request(request: PlanRequest, steps: Sequence[tuple[int, float]]) -> PlanRequest:
    """Return the request after these steps: the last step of a table counts."""
    shares = dict(steps)
    tables = (
        replace(table, cache_share=shares[number]) if number in shares else table
        for number, table in enumerate(request.tables)
    )
    return replace(request, tables=tuple(tables))
