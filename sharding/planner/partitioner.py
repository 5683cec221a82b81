"""Which rank holds which part, while a plan is made: loads and memory are kept up to date part by part."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.request import PlanRequest
from sharding.planner.types import Block, ShardingType, Table


@dataclass(frozen=True)
class ShardingOption:
    """One way to part a table, and where its parts may be."""

    table: Table
    type: ShardingType
    blocks: tuple[Block, ...]
    """Their ranks are numbers: of `ranks` where those are fixed, else of the part."""
    ranks: Sequence[int]
    """Where the parts may be, in order; a range where that is anywhere."""
    is_fixed: bool = False
    """Part i belongs on the rank that its block says."""
    is_on_one_node: bool = False
    reason: str = ""

    @cached_property
    def allowed(self) -> Container[int]:
        """The same, to ask of single ranks."""
        return self.ranks if isinstance(self.ranks, range) else frozenset(self.ranks)

    @property
    def num_row_ranges(self) -> int:
        return len({part.first_row for part in self.blocks})


@dataclass(eq=False)
class PlacedShard:
    """A block that may move."""

    table: int
    """Its number."""
    block: Block
    seconds: float
    num_bytes: int
    is_movable: bool
    option: ShardingOption
    rank: int = -1

    def may_be_on(self, rank: int) -> bool:
        return rank in self.option.allowed


@dataclass
class RankLoad:
    """What is on a rank."""

    seconds: float = 0.0
    num_bytes: int = 0
    shards: list[PlacedShard] = field(default_factory=list)


class NoRoomError(Exception):
    """A table whose parts find no rank with enough memory left."""

    def __init__(self, split: ShardingOption) -> None:
        self.split = split
        super().__init__(split.table.name)


class PlacementState:
    """Tables on ranks. `common_seconds`: what every rank has to do besides, whoever owns what."""

    def __init__(self, request: PlanRequest, costs: CostEstimator, memory: MemoryEstimator) -> None:
        self._topology = request.topology
        self._costs, self._memory = costs, memory
        everywhere = sum(memory.everywhere().values()) * self._topology.ranks_per_memory_domain
        self._empty_bytes = self._topology.memory_bytes - everywhere
        """In each pool, without tables."""
        self._free = [self._empty_bytes] * self._topology.num_memory_domains
        self._split_bytes = 0
        """In each pool for tables that are split, whoever owns what."""
        self._stepping: dict[int, int] = {}
        """In each pool while a copy is stepped, by the table's number: one after the other."""
        self._common_bytes = 0
        """Of both; not yet taken off `_free`."""
        self.ranks = [RankLoad() for _ in range(self._topology.world_size)]
        self.common_seconds = 0.0
        self.options: dict[int, ShardingOption] = {}
        self._parts: dict[int, list[PlacedShard]] = {}
        self._memory_of_shape: dict[tuple[int, bool, int, int], tuple[float, int]] = {}

    def has_room_for(self, splits: Sequence[ShardingOption]) -> bool:
        """Whether all memory together would do, however parts are placed."""
        needed = sum(
            self._shape(number, split, part)[1] for number, split in enumerate(splits) for part in split.blocks
        )
        needed += self.common_bytes(splits) * len(self._free)
        return min(self._free) >= 0 and needed <= sum(self._free)

    def common_bytes(self, splits: Sequence[ShardingOption]) -> int:
        """In each pool for those that are split, whoever owns what."""
        return sum(self._bytes_of_split(split) for split in splits if split.type != "data_parallel")

    def could_hold(self, number: int, split: ShardingOption, common_bytes: int) -> bool:
        """Whether a pool without tables has room for one largest part beside what is common."""
        needed = self._shape(number, split, split.blocks[0])[1]
        if split.type == "data_parallel":
            needed = (needed + self._memory.stepping(split.table)) * self._topology.ranks_per_memory_domain
        return needed + common_bytes <= self._empty_bytes

    @property
    def seconds(self) -> float:
        """Of the slowest rank."""
        return max(held.seconds for held in self.ranks) + self.common_seconds

    def shards_of(self, number: int) -> list[PlacedShard]:
        return self._parts[number]

    def fits(self, part: PlacedShard, rank: int) -> bool:
        return part.num_bytes <= self._free_bytes_of(self._topology.memory_domain(rank))

    def fits_instead(self, part: PlacedShard, other: PlacedShard) -> bool:
        """Whether each of two parts finds room in the place of the other."""
        here, there = self._topology.memory_domain(part.rank), self._topology.memory_domain(other.rank)
        more = part.num_bytes - other.num_bytes
        return here == there or (self._free_bytes_of(there) >= more and self._free_bytes_of(here) >= -more)

    def add(self, number: int, split: ShardingOption) -> None:
        """Put the parts of table `number` on the least loaded ranks. Raises NoRoomError, and nothing has changed."""
        parts = self._new_parts(number, split)
        self._add_common(number, split)
        ranks = self._choose_ranks(split, parts) if min(self._free) >= self._common_bytes else None
        self._subtract_common(number, split)
        if ranks is None:
            raise NoRoomError(split)
        self._place_table(number, split, parts, ranks)

    def remove(self, number: int) -> None:
        for part in self._parts.pop(number):
            self._remove_shard(part)
        split = self.options.pop(number)
        self.common_seconds -= self._common(split)
        self._subtract_common(number, split)

    def restore(self, number: int, split: ShardingOption, ranks: Sequence[int]) -> None:
        """As it was before it was removed."""
        self._place_table(number, split, self._new_parts(number, split), ranks)

    def snapshot(self) -> dict[int, tuple[ShardingOption, list[int]]]:
        """Of every table how it is parted, and the ranks of its parts."""
        return {number: (self.options[number], [part.rank for part in parts]) for number, parts in self._parts.items()}

    def return_to(self, snapshot: dict[int, tuple[ShardingOption, list[int]]]) -> None:
        for number in list(self._parts):
            self.remove(number)
        for number, (split, ranks) in snapshot.items():
            self.restore(number, split, ranks)

    def move(self, part: PlacedShard, rank: int) -> None:
        self._remove_shard(part)
        self._place_shard(part, rank)

    def swap(self, part: PlacedShard, other: PlacedShard) -> None:
        here, there = part.rank, other.rank
        self._remove_shard(part)
        self._remove_shard(other)
        self._place_shard(part, there)
        self._place_shard(other, here)

    def holds(self, rank: int, number: int) -> bool:
        return any(part.table == number for part in self.ranks[rank].shards)

    def _place_table(self, number: int, split: ShardingOption, parts: list[PlacedShard], ranks: Sequence[int]) -> None:
        for part, rank in zip(parts, ranks, strict=True):
            self._place_shard(part, rank)
        self._parts[number], self.options[number] = parts, split
        self.common_seconds += self._common(split)
        self._add_common(number, split)

    def _free_bytes_of(self, pool: int) -> int:
        return self._free[pool] - self._common_bytes

    def _add_common(self, number: int, split: ShardingOption) -> None:
        if split.type == "data_parallel":
            self._stepping[number] = self._memory.stepping(split.table) * self._topology.ranks_per_memory_domain
        else:
            self._split_bytes += self._bytes_of_split(split)
        self._common_bytes = self._split_bytes + max(self._stepping.values(), default=0)

    def _subtract_common(self, number: int, split: ShardingOption) -> None:
        if split.type == "data_parallel":
            del self._stepping[number]
        else:
            self._split_bytes -= self._bytes_of_split(split)
        self._common_bytes = self._split_bytes + max(self._stepping.values(), default=0)

    def _bytes_of_split(self, split: ShardingOption) -> int:
        return self._memory.split(split.table, split.blocks) * self._topology.ranks_per_memory_domain

    def _place_shard(self, part: PlacedShard, rank: int) -> None:
        part.rank = rank
        held = self.ranks[rank]
        # A copy on every rank weighs on none of them more than on the others.
        if part.seconds:
            held.shards.append(part)
        held.seconds += part.seconds
        held.num_bytes += part.num_bytes
        self._free[self._topology.memory_domain(rank)] -= part.num_bytes

    def _remove_shard(self, part: PlacedShard) -> None:
        held = self.ranks[part.rank]
        if part.seconds:
            held.shards.remove(part)
        # Summed anew: what is added and taken often must leave no rounding behind.
        held.seconds = sum(other.seconds for other in held.shards)
        held.num_bytes -= part.num_bytes
        self._free[self._topology.memory_domain(part.rank)] += part.num_bytes

    def _common(self, split: ShardingOption) -> float:
        if split.type == "data_parallel":
            return self._costs.replicated(split.table).seconds
        return self._costs.everywhere(split.table, split.num_row_ranges).seconds

    def _new_parts(self, number: int, split: ShardingOption) -> list[PlacedShard]:
        is_movable = not (split.is_fixed or split.is_on_one_node)
        parts: list[PlacedShard] = []
        for block in split.blocks:
            seconds, num_bytes = self._shape(number, split, block)
            parts.append(PlacedShard(number, block, seconds, num_bytes, is_movable, split))
        return parts

    def _shape(self, number: int, split: ShardingOption, block: Block) -> tuple[float, int]:
        is_copy = split.type == "data_parallel"
        key = (number, is_copy, block.num_rows, block.num_columns)
        if key not in self._memory_of_shape:
            self._memory_of_shape[key] = self._shape_of_copy(split) if is_copy else self._shape_of_block(split, block)
        return self._memory_of_shape[key]

    def _shape_of_copy(self, split: ShardingOption) -> tuple[float, int]:
        return 0.0, self._memory.copy(split.table)

    def _shape_of_block(self, split: ShardingOption, block: Block) -> tuple[float, int]:
        shape = split.table, block.num_rows, block.num_columns
        return self._costs.block(*shape).seconds, self._memory.block(*shape)

    def _choose_ranks(self, split: ShardingOption, parts: list[PlacedShard]) -> list[int] | None:
        """A rank for each part; None where there is no room."""
        if split.is_fixed:
            ranks = [part.block.rank for part in parts]
            needed: dict[int, int] = {}
            for part, rank in zip(parts, ranks, strict=True):
                pool = self._topology.memory_domain(rank)
                needed[pool] = needed.get(pool, 0) + part.num_bytes
            return ranks if all(self._free_bytes_of(pool) >= num_bytes for pool, num_bytes in needed.items()) else None
        if not split.is_on_one_node:
            return self._least_loaded(parts, split.ranks)
        found = [
            ranks
            for _, of_node in groupby(split.ranks, self._topology.node)
            if (ranks := self._least_loaded(parts, list(of_node)))
        ]
        return min(found, key=lambda ranks: self._height(parts, ranks), default=None)

    def _height(self, parts: list[PlacedShard], ranks: list[int]) -> tuple[float, int]:
        after = [self.ranks[rank].seconds + part.seconds for part, rank in zip(parts, ranks, strict=True)]
        return max(after), max(self.ranks[rank].num_bytes for rank in ranks)

    def _least_loaded(self, parts: list[PlacedShard], allowed: Sequence[int]) -> list[int] | None:
        """Distinct ranks, the largest part first; of equally loaded ones the one with the fewest bytes."""
        if len(parts) > len(allowed):
            return None
        left = sorted(allowed, key=lambda rank: (self.ranks[rank].seconds, self.ranks[rank].num_bytes, rank))
        taken: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for number in sorted(range(len(parts)), key=lambda number: -parts[number].num_bytes):
            part = parts[number]
            for rank in left:
                pool = self._topology.memory_domain(rank)
                if taken.get(pool, 0) + part.num_bytes <= self._free_bytes_of(pool):
                    break
            else:
                return None
            left.remove(rank)
            taken[pool] = taken.get(pool, 0) + part.num_bytes
            chosen[number] = rank
        return [chosen[number] for number in range(len(parts))]
