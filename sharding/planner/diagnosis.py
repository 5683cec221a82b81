"""The diagnosis of a request without a plan: the table or rule at fault, the memory it needs, and requests that work.

The result is structured; dlrm.planning turns it into sentences with units.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

from sharding.planner.alternatives import RoundMemory, find_alternatives, with_memory
from sharding.planner.cache_size import count_device_bytes
from sharding.planner.caching import NoHostRoomError, cache_all
from sharding.planner.constraints import make_initial_options, match_rules
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import Enumerator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.partitioner import NoRoomError, PlacementState
from sharding.planner.proposer import find_placement
from sharding.planner.types import PlanError, PlanRequest, ShardingOption, ShardingType

FIRST_MARGIN = 64
"""Memory is first tried with 1/64 more than tables need at least, then the margin doubles."""
GRAIN = 128
"""Bisection for the least memory stops at a relative error of 1/128."""
NEAR = 32
"""Memories within 1/32 of the fullest count as full too. The one of them with most buffers of fixed tables is
diagnosed, since it shows the cause best."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one memory domain that a placement fills, as the search counts them."""

    weights_and_state: int
    shard_buffers: list[int]
    """Bytes by table, for the buffers of its shards in this memory."""
    split_tables: list[int]
    """Bytes by table that a split table takes of every memory, whichever ranks own its shards."""
    others: dict[str, int]
    """Bytes by use that belong to no table."""

    @property
    def num_bytes(self) -> int:
        return self.weights_and_state + sum(self.shard_buffers) + sum(self.split_tables) + sum(self.others.values())

    def as_dict(self) -> dict[str, int]:
        """Return the bytes by use, all tables together."""
        return {
            "weights_and_state": self.weights_and_state,
            "shard_buffers": sum(self.shard_buffers),
            "split_tables": sum(self.split_tables),
            **self.others,
        }


@dataclass(frozen=True)
class BlamedRule:
    """A rule whose tables take more memory for buffers than anything else takes."""

    rule: int | None
    """Number of the rule; None for the type that the request has for all other tables."""
    sharding_type: ShardingType
    tables: tuple[str, ...]
    """Names of the rule's tables."""
    buffer_bytes: int
    max_shards: int
    """Largest number of shards that one of the tables has."""


@dataclass(frozen=True)
class Diagnosis:
    """Reasons why a request has no plan, and changes of it that give it one."""

    request: PlanRequest
    option: ShardingOption
    """Option of the first table that did not fit; for an automatic table, the option with its smallest shards."""
    is_option_at_fault: bool
    """Whether the table of `option` is the cause; else all tables together are too large."""
    least_memory_bytes: int | None
    """Least bytes of a memory domain that would do; None if no amount would."""
    memory_use: MemoryUse | None
    """Use of the fullest memory domain in a placement with the least memory; None if absent."""
    blamed_rule: BlamedRule | None
    alternatives: tuple[PlanRequest, ...]
    """Requests that were tried and have a plan, the cheapest change first."""
    least_host_bytes: int | None = None
    """Least bytes of the memory of a node of GPUs with which the tables would fit; None if that is not the cause."""
    cache_share: float = 1.0
    """Share of each table's rows that GPUs cache in `memory_use`, with the least memory; 1: tables are whole there."""

    @property
    def short_bytes(self) -> int | None:
        """Bytes that a memory domain lacks; None if no amount would do."""
        if self.least_memory_bytes is None:
            return None
        return self.least_memory_bytes - self.request.topology.memory_bytes

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis for JSON; of each alternative the fields that differ from the request."""
        return {
            "option": {
                "table": self.option.table.name,
                "sharding_type": self.option.sharding_type,
                "num_shards": len(self.option.blocks),
                "is_automatic": self.option.is_automatic,
                "is_at_fault": self.is_option_at_fault,
            },
            "least_memory_bytes": self.least_memory_bytes,
            "least_host_bytes": self.least_host_bytes,
            "cache_share": self.cache_share,
            "memory_use": self.memory_use and self.memory_use.as_dict(),
            "blamed_rule": self.blamed_rule and asdict(self.blamed_rule),
            "alternatives": [_find_changed_fields(self.request, other) for other in self.alternatives],
        }


@dataclass
class NoPlanError(PlanError):
    """Error of a request whose tables do not fit into memory."""

    diagnosis: Diagnosis = field(kw_only=True)

    @classmethod
    def from_diagnosis(cls, diagnosis: Diagnosis) -> "NoPlanError":
        """Return the error for a diagnosis."""
        rule, least = diagnosis.blamed_rule, diagnosis.least_memory_bytes
        available = diagnosis.request.topology.memory_bytes
        message = "the tables do not fit into memory"
        message += f": {least:,} bytes are needed and {available:,} available" if least is not None else ""
        table = rule.tables[0] if rule else diagnosis.option.table.name
        return cls(message, table=table, short_bytes=diagnosis.short_bytes, diagnosis=diagnosis)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with the diagnosis."""
        return super().as_dict() | {"diagnosis": self.diagnosis.as_dict()}


def diagnose(request: PlanRequest, error: NoRoomError, round_memory: RoundMemory) -> Diagnosis:
    """Find out why a request has no plan.

    error: error of the search. Amounts of memory are tried as `round_memory` returns them.
    """
    use = rule = least = least_host_bytes = None
    searched, failed = request, error.option
    if isinstance(error, NoHostRoomError):
        # With caches GPUs have room: the memory is looked for that they would need without.
        least_host_bytes = error.host_bytes
        failed = replace(error.option, table=replace(error.option.table, cache_share=1.0))
    else:
        searched = cache_all(request)
    options = make_initial_options(searched, CostEstimator(searched))
    if found := _find_least_memory(searched, options, round_memory):
        least, placement = found
        use = _find_fullest_memory(searched, options, _list_memory_uses(searched, placement))
        rule = _find_blamed_rule(searched, options, use)
    option = failed
    if failed.is_automatic:
        option = Enumerator(searched, CostEstimator(searched)).make_finest_option(failed)
    # A table smaller than the missing memory is not the cause: without it, the others would not fit either.
    is_innocent = (
        failed.is_automatic
        and least is not None
        and len(request.tables) > 1
        and _count_table_bytes(request, failed) < least - request.topology.memory_bytes
    )
    alternatives = tuple(find_alternatives(request, least, round_memory))
    cache_share = min((table.cache_share for table in searched.tables), default=1.0)
    return Diagnosis(request, option, not is_innocent, least, use, rule, alternatives, least_host_bytes, cache_share)


def _find_least_memory(
    request: PlanRequest, options: Sequence[ShardingOption], round_memory: RoundMemory
) -> tuple[int, PlacementState] | None:
    """Return the least bytes of a memory domain that give a plan, up to GRAIN, and the placement of that plan.

    None if even room for everything in each memory domain is not enough.
    """
    topology = request.topology
    needed = sum(_count_table_bytes(request, option) for option in options)
    min_bytes = max(needed // topology.num_memory_domains, topology.memory_bytes)
    max_bytes = _count_all_bytes(request, options)

    def place(num_bytes: int) -> PlacementState | None:
        tried = with_memory(request, num_bytes)
        try:
            return find_placement(tried, CostEstimator(tried), options, is_improved=False)
        except NoRoomError:
            return None

    # Upwards with a margin that doubles: the least is mostly a little more than the tables need.
    failed, margin = min_bytes, 1 + min_bytes // FIRST_MARGIN
    while (found := place(enough := round_memory(min(min_bytes + margin, max(min_bytes + 1, max_bytes))))) is None:
        if min_bytes + margin >= max_bytes:
            return None
        failed, margin = enough, 2 * margin
    # Then bisection between the last amount that failed and the first that was enough.
    while enough - failed > enough // GRAIN:
        between = round_memory((failed + enough) // 2)
        if not failed < between < enough:
            break
        if (other := place(between)) is not None:
            enough, found = between, other
        else:
            failed = between
    # Memory that is free even in the fullest domain is mostly not needed.
    used = round_memory(max(use.num_bytes for use in _list_memory_uses(request, found)))
    if topology.memory_bytes < used < enough and (other := place(used)) is not None:
        enough, found = used, other
    return enough, found


def _count_all_bytes(request: PlanRequest, options: Sequence[ShardingOption]) -> int:
    """Return the bytes of all tables with their initial options in one memory; no placement needs more."""
    memory, num_ranks = _make_pessimistic_estimator(request), request.topology.ranks_per_memory_domain
    replicated = [option.table for option in options if option.is_replicated]
    on_every_rank = sum(memory.estimate_common_bytes(replicated).values()) + sum(
        map(memory.estimate_copy_bytes, replicated)
    )
    shards = 0
    for option in options:
        if not option.is_replicated:
            on_every_rank += memory.estimate_split_table_bytes(option.table, option.blocks)
            shards += sum(
                memory.estimate_shard_bytes(option.table, block.num_rows, block.num_columns) for block in option.blocks
            )
    return shards + on_every_rank * num_ranks


def _make_pessimistic_estimator(request: PlanRequest) -> MemoryEstimator:
    """Make an estimator with the largest slices: it never counts less than the search does."""
    return MemoryEstimator(request, split_columns=0)


def _count_table_bytes(request: PlanRequest, option: ShardingOption) -> int:
    """Count the bytes of a whole table in memory of its own."""
    table = option.table
    if request.is_in_files and not option.is_replicated:
        return 0
    return count_device_bytes(request.optimizer, table.cache_share, table.num_rows, table.embedding_dim, table.dtype)


def _list_memory_uses(request: PlanRequest, placement: PlacementState) -> list[MemoryUse]:
    """Return the use of each memory domain."""
    topology = request.topology
    options = [option for _, option in sorted(placement.options.items())]
    split_tables = [placement.count_split_bytes([option]) for option in options]
    # Common bytes do not depend on slices, so that any estimator counts them right.
    on_rank = _make_pessimistic_estimator(request).estimate_common_bytes(
        option.table for option in options if option.is_replicated
    )
    others = {name: num_bytes * topology.ranks_per_memory_domain for name, num_bytes in on_rank.items()}
    kept = [0] * topology.num_memory_domains
    buffers = [[0] * len(options) for _ in kept]
    for number, option in enumerate(options):
        share = option.table.cache_share
        for shard in placement.get_shards(number):
            memory_domain = topology.get_memory_domain(shard.rank)
            block = shard.block
            kept_bytes = (
                0
                if request.is_in_files and not option.is_replicated
                else count_device_bytes(request.optimizer, share, block.num_rows, block.num_columns, option.table.dtype)
            )
            kept[memory_domain] += kept_bytes
            buffers[memory_domain][number] += shard.num_bytes - kept_bytes
    return [
        MemoryUse(kept_bytes, of_tables, split_tables, others)
        for kept_bytes, of_tables in zip(kept, buffers, strict=True)
    ]


def _find_fullest_memory(
    request: PlanRequest, options: Sequence[ShardingOption], uses: Sequence[MemoryUse]
) -> MemoryUse:
    """Return the use of the fullest memory; among nearly full ones, of the one with most buffers of fixed tables."""
    burdened = [number for tables in _find_buffered_tables(request, options).values() for number in tables]
    most = max(use.num_bytes for use in uses)
    near = [use for use in uses if most - use.num_bytes <= most // NEAR]
    return max(near, key=lambda use: (sum(use.shard_buffers[number] for number in burdened), use.num_bytes))


def _find_blamed_rule(request: PlanRequest, options: Sequence[ShardingOption], use: MemoryUse) -> BlamedRule | None:
    """Return the rule whose tables' buffers take more of a memory than anything else; None if none does."""
    by_rule = _find_buffered_tables(request, options)

    def count_buffer_bytes(tables: Iterable[int]) -> int:
        return sum(use.shard_buffers[number] + use.split_tables[number] for number in tables)

    rule = max(by_rule, key=lambda rule: count_buffer_bytes(by_rule[rule]), default=None)
    tables = by_rule.get(rule, [])
    of_rule, of_all = count_buffer_bytes(tables), count_buffer_bytes(range(len(options)))
    if of_rule <= max(use.weights_and_state, of_all - of_rule, *use.others.values()):
        return None
    names = tuple(options[number].table.name for number in tables)
    max_shards = max(len(options[number].blocks) for number in tables)
    return BlamedRule(rule, options[tables[0]].sharding_type, names, of_rule, max_shards)


def _find_buffered_tables(request: PlanRequest, options: Sequence[ShardingOption]) -> dict[int | None, list[int]]:
    """Return, by rule, the numbers of the tables whose fixed type has more buffers than another would have.

    These are copies, and tables split by rows over a network. A whole table, or one split by columns, has the buffers
    that it needs in any case.
    """
    by_rule: dict[int | None, list[int]] = {}
    for number, (rule, option) in enumerate(zip(match_rules(request), options, strict=True)):
        is_by_rows = request.transport != "memory" and option.num_row_ranges > 1
        if not option.is_automatic and (option.is_replicated or is_by_rows):
            by_rule.setdefault(rule, []).append(number)
    return by_rule


def _find_changed_fields(old: Any, new: Any) -> dict[str, Any]:
    """Return the fields in which `new` differs from `old`.

    A nested dataclass has its own changed fields, and tables have them by name.
    """
    changed: dict[str, Any] = {}
    for name in (member.name for member in fields(old)):
        before, after = getattr(old, name), getattr(new, name)
        if before != after and name == "tables":
            pairs = zip(before, after, strict=True)
            changed[name] = {table.name: _find_changed_fields(table, other) for table, other in pairs}
        elif before != after:
            changed[name] = _find_changed_fields(before, after) if is_dataclass(before) else after
    return changed
