"""The choice of tables that stay in the memory of the host, where GPUs have no room for all.

A GPU then caches rows of them (TorchRec's compute kernel fused_uvm_caching), and a step waits for the rows that its
cache has not. So few tables as possible are cached, and those first that save most memory for each row fetched: the
tables with most rows for each id. Each gets the smallest cache that the request allows before the next is cached, and
the last one the largest cache that memory has room for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sharding.planner.cache_size import count_device_bytes, count_host_bytes
from sharding.planner.constraints import make_initial_options
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.partitioner import NoRoomError, PlacementState
from sharding.planner.proposer import find_placement
from sharding.planner.types import Block, PlanRequest, ShardingOption, Table

CACHE_SHARES = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Shares of a table's rows that are tried, from the largest cache on."""


class NoHostRoomError(NoRoomError):
    """Error of tables that would fit if the memory of the host had room for those that GPUs would cache."""

    def __init__(self, option: ShardingOption, host_bytes: int) -> None:
        """Keep what is missing. host_bytes: bytes of the node that needs most, where as few as possible are cached."""
        self.host_bytes = host_bytes
        super().__init__(option)


@dataclass(frozen=True)
class CachedPlacement:
    """A placement of all tables, and the request whose tables say which of them are cached."""

    request: PlanRequest
    placement: PlacementState


def place_tables(request: PlanRequest, *, is_improved: bool) -> CachedPlacement:
    """Place all tables, cached ones among them only where there is no other way.

    is_improved: whether to search for a fast placement, and not only for one that fits. Raises PlanError, NoRoomError
    and, where only the memory of hosts is too small, NoHostRoomError.
    """
    try:
        return _place(request, is_improved=is_improved)
    except NoRoomError:
        if not request.may_cache:
            raise
        cached_request = _find_least_cached(request)
    placed = _place(cached_request, is_improved=is_improved)
    by_node = count_host_bytes_by_node(cached_request, placed.placement)
    if max(by_node) > request.topology.host_memory_bytes:
        largest = max(placed.placement.options.values(), key=lambda option: option.table.weight_bytes)
        raise NoHostRoomError(largest, max(by_node))
    return placed


def cache_all(request: PlanRequest) -> PlanRequest:
    """Return the request with the smallest caches of all tables that may be cached; unchanged where none may.

    Raises PlanError.
    """
    if not request.may_cache:
        return request
    candidates, shares = _list_candidates(request), _list_shares(request)
    return _make_cached_request(request, candidates, shares, len(candidates) * len(shares))


def count_host_bytes_by_node(request: PlanRequest, placement: PlacementState) -> list[int]:
    """Return the bytes of each node's memory for cached tables, and for all that is not a table."""
    by_node = [request.dense.host_memory_bytes] * request.topology.num_nodes
    for number, option in placement.options.items():
        for shard in placement.get_shards(number):
            by_node[request.topology.get_node(shard.rank)] += count_block_host_bytes(request, option.table, shard.block)
    return by_node


def count_block_host_bytes(request: PlanRequest, table: Table, block: Block) -> int:
    """Return the bytes of a shard in the memory of its host; 0 where its table is not cached."""
    return count_host_bytes(request.optimizer, table.cache_share, block.num_rows, block.num_columns)


def _place(request: PlanRequest, *, is_improved: bool) -> CachedPlacement:
    costs = CostEstimator(request)
    options = make_initial_options(request, costs)
    return CachedPlacement(request, find_placement(request, costs, options, is_improved=is_improved))


def _find_least_cached(request: PlanRequest) -> PlanRequest:
    """Return the request that fits with as little cached as possible. Raises NoRoomError where none does."""
    candidates, shares = _list_candidates(request), _list_shares(request)
    # Bisection over the steps from nothing cached, which does not fit, to everything: each takes less memory.
    failed, enough = 0, len(candidates) * len(shares)
    _place(_make_cached_request(request, candidates, shares, enough), is_improved=False)
    while enough - failed > 1:
        between = (failed + enough) // 2
        try:
            _place(_make_cached_request(request, candidates, shares, between), is_improved=False)
            enough = between
        except NoRoomError:
            failed = between
    return _make_cached_request(request, candidates, shares, enough)


def _list_candidates(request: PlanRequest) -> list[int]:
    """List the numbers of the tables that may be cached, those first that save most memory for each row fetched."""

    def saves_memory(table: Table) -> bool:
        whole, smallest = (
            count_device_bytes(request.optimizer, share, table.num_rows, table.embedding_dim)
            for share in (1.0, request.min_cache_share)
        )
        return smallest < whole

    numbers = [
        number
        for number, option in enumerate(make_initial_options(request, CostEstimator(request)))
        # Copies that a rule asks for are replicated: every rank needs all rows in its own memory.
        if (option.is_automatic or not option.is_replicated) and saves_memory(option.table)
    ]
    return sorted(numbers, key=lambda number: _count_rows_per_id(request.tables[number]), reverse=True)


def _count_rows_per_id(table: Table) -> float:
    return table.num_rows / table.ids_per_sample if table.ids_per_sample else math.inf


def _list_shares(request: PlanRequest) -> list[float]:
    """List the shares of a table's rows that may be cached, in descending order."""
    return [*(share for share in CACHE_SHARES if share > request.min_cache_share), request.min_cache_share]


def _make_cached_request(
    request: PlanRequest, candidates: Sequence[int], shares: Sequence[float], num_steps: int
) -> PlanRequest:
    """Return the request after `num_steps` steps, each of which makes the cache of one table smaller."""
    num_least, step = divmod(num_steps, len(shares))
    by_number = dict.fromkeys(candidates[:num_least], shares[-1])
    if step:
        by_number[candidates[num_least]] = shares[step - 1]
    tables = (
        replace(table, cache_share=by_number[number]) if number in by_number else table
        for number, table in enumerate(request.tables)
    )
    return replace(request, tables=tuple(tables))
