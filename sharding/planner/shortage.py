"""What fills the fullest memory, and which table or rule is at the bottom of it, in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharding.planner.amounts import as_written_at_most, in_sentence, sum_in_words
from sharding.planner.constraints import rules_by_table, types_by_table
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import Enumerator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.partitioner import PlacementState, ShardingOption
from sharding.planner.request import PlanRequest
from sharding.planner.types import Table, weight_and_state_bytes

NEAR = 32
"""Memories that lack less than this part of the most are as full: the one that rules burden most tells more."""


@dataclass(frozen=True)
class Uses:
    """Bytes of a memory that a placement fills, as the search counts them."""

    kept: int
    """Weights and optimizer's state."""
    buffers: list[int]
    """By table, of its parts in this memory."""
    exchanged: list[int]
    """By table, in every memory, whoever owns what."""
    others: dict[str, int]
    """By what they are for."""

    @property
    def num_bytes(self) -> int:
        return self.kept + sum(self.buffers) + sum(self.exchanged) + sum(self.others.values())


def all_uses(request: PlanRequest, placement: PlacementState) -> list[Uses]:
    """Of each memory."""
    topology = request.topology
    splits = [split for _, split in sorted(placement.options.items())]
    exchanged = [placement.common_bytes([split]) for split in splits]
    # None of it depends on how many columns are split.
    on_rank = MemoryEstimator(request, split_columns=0).everywhere(
        of.table for of in splits if of.type == "data_parallel"
    )
    others = {name: num_bytes * topology.ranks_per_memory_domain for name, num_bytes in on_rank.items()}
    kept = [0] * topology.num_memory_domains
    buffers = [[0] * len(splits) for _ in kept]
    for number in range(len(splits)):
        for part in placement.shards_of(number):
            pool = topology.memory_domain(part.rank)
            of_block = weight_and_state_bytes(request.optimizer, part.block.num_rows, part.block.num_columns)
            kept[pool] += of_block
            buffers[pool][number] += part.num_bytes - of_block
    return [Uses(*of_pool, exchanged, others) for of_pool in zip(kept, buffers, strict=True)]


def fullest(request: PlanRequest, splits: Sequence[ShardingOption], uses: Sequence[Uses]) -> Uses:
    """splits: of every table, as somebody has fixed them."""
    dear = [number for tables in _dear_tables(request, splits).values() for number in tables]
    most = max(of.num_bytes for of in uses)
    near = [of for of in uses if most - of.num_bytes <= most // NEAR]
    return max(near, key=lambda of: (sum(of.buffers[number] for number in dear), of.num_bytes))


def in_words(request: PlanRequest, uses: Uses, memory_bytes: int) -> str:
    """memory_bytes: with which there is the placement that is told of."""
    topology, device = request.topology, request.topology.device
    there = as_written_at_most(topology.memory_bytes, device)
    needed, short = in_sentence(memory_bytes, device), in_sentence(memory_bytes - there, device)
    what = "rank" if device == "cuda" else "node"
    of_split = "gradients of pooled embeddings" if request.transport == "memory" else "slices of the exchange"
    parts = [
        ("weights and optimizer state", uses.kept),
        ("buffers of tables", sum(uses.buffers)),
        (of_split, sum(uses.exchanged)),
        *uses.others.items(),
        ("left free", memory_bytes - uses.num_bytes),
    ]
    return (
        f"the fullest {what} needs {needed} and has {in_sentence(there, device)}, {short} short. "
        f"The {needed} are {sum_in_words(parts, device)}"
    )


def rule_to_blame(request: PlanRequest, splits: Sequence[ShardingOption], uses: Uses) -> tuple[str, str] | None:
    """A table of the rule whose buffers take more than anything else, and what is to blame; None where there is none.

    splits: of every table. Whole tables, and those in runs of columns, have the buffers that they need anyhow.
    """
    by_rule = _dear_tables(request, splits)

    def buffers(tables: Iterable[int]) -> int:
        return sum(uses.buffers[number] + uses.exchanged[number] for number in tables)

    rule = max(by_rule, key=lambda rule: buffers(by_rule[rule]), default=None)
    tables = by_rule.get(rule, [])
    of_rule, of_all = buffers(tables), buffers(range(len(splits)))
    if of_rule <= max(uses.kept, of_all - of_rule, *uses.others.values()):
        return None
    kind = splits[tables[0]].type
    who = f"plan {kind}" if rule is None else f"rule {request.rules[rule].pattern!r}, {kind},"
    most = max(len(splits[number].blocks) for number in tables)
    parts = f"with copies on {most} ranks" if kind == "data_parallel" else f"in up to {most} parts each"
    amount = in_sentence(of_rule, request.topology.device)
    blame = f"the {who} takes {amount} for buffers of its tables ({len(tables)}, {parts})"
    return request.tables[tables[0]].name, blame


def is_innocent(request: PlanRequest, table: Table, short_bytes: int) -> bool:
    """Whether others would have no room either without it."""
    return (
        len(request.tables) > 1
        and weight_and_state_bytes(request.optimizer, table.num_rows, table.embedding_dim) < short_bytes
    )


def table_in_words(request: PlanRequest, split: ShardingOption, is_automatic: bool) -> str:
    """That it finds no room: whole, and in the smallest parts that it may be in."""
    device, table = request.topology.device, split.table
    size = in_sentence(weight_and_state_bytes(request.optimizer, table.num_rows, table.embedding_dim), device)
    if is_automatic:
        split = _finest(Enumerator(request, CostEstimator(request)), split)
    if split.type == "data_parallel":
        size += ", with a copy on every rank"
    elif len(split.blocks) == 1:
        size += ", whole on one rank"
    else:
        on_rank = weight_and_state_bytes(request.optimizer, split.blocks[0].num_rows, split.blocks[0].num_columns)
        may_be = "it may be split: " if is_automatic else ""
        size = f"{may_be}{size} whole, {in_sentence(on_rank, device)} a rank in {len(split.blocks)} parts"
    return f"table {table.name} ({size}) finds no room"


def _dear_tables(request: PlanRequest, splits: Sequence[ShardingOption]) -> dict[int | None, list[int]]:
    """Those whose fixed type has more buffers than others have, by the number of their rule."""
    by_rule: dict[int | None, list[int]] = {}
    for number, (rule, kind) in enumerate(zip(rules_by_table(request), types_by_table(request), strict=True)):
        is_by_rows = request.transport == "network" and splits[number].num_row_ranges > 1
        if kind == "data_parallel" or (kind != "auto" and is_by_rows):
            by_rule.setdefault(rule, []).append(number)
    return by_rule


def _finest(choices: Enumerator, split: ShardingOption) -> ShardingOption:
    while (finer := choices.finer_option(split)) is not None:
        split = finer
    return split
