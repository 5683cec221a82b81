"""The placement of shards on ranks during the search, with each rank's load and free memory.

A rank's load is the seconds of a step that its shards take. A memory domain is the memory of one GPU, or the memory
that the ranks of a node of CPUs share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.types import Block, PlanRequest, ShardingOption

Snapshot = dict[int, tuple[ShardingOption, list[int]]]
"""Option of every table, by the table's number, and the rank of each of its shards."""


@dataclass(eq=False)
class PlacedShard:
    """A shard on a rank, which it may leave."""

    table: int
    """Number of its table."""
    block: Block
    """Rectangle of the table; its rank does not count, see `ShardingOption.blocks`."""
    seconds: float
    """Seconds of a step that it takes its rank; 0 for a copy that every rank has."""
    num_bytes: int
    is_movable: bool
    option: ShardingOption
    rank: int = -1
    """Rank that holds it now; -1 before it is placed."""

    def may_be_on(self, rank: int) -> bool:
        """Whether its option allows `rank`."""
        return rank in self.option.rank_set


@dataclass
class RankLoad:
    """The shards on one rank, with their time and memory."""

    seconds: float = 0.0
    num_bytes: int = 0
    shards: list[PlacedShard] = field(default_factory=list)
    """Shards that take time: copies on every rank are left out."""


class NoRoomError(Exception):
    """Error of a table for whose shards no rank has enough free memory."""

    def __init__(self, option: ShardingOption) -> None:
        self.option = option
        super().__init__(option.table.name)


class PlacementState:
    """The tables that are placed so far, the load of each rank and the free memory."""

    def __init__(self, request: PlanRequest, costs: CostEstimator, memory: MemoryEstimator) -> None:
        """Start without tables."""
        self._topology = request.topology
        self._costs, self._memory = costs, memory
        on_every_rank = sum(memory.estimate_common_bytes().values()) * self._topology.ranks_per_memory_domain
        self._empty_bytes = self._topology.memory_bytes - on_every_rank
        """Free bytes of a memory domain without tables; negative where not even the dense part fits."""
        self._free = [self._empty_bytes] * self._topology.num_memory_domains
        """Free bytes by memory domain, before `_common_bytes` are subtracted."""
        self._split_bytes = 0
        """Bytes of each memory domain for split tables, whichever ranks own their shards."""
        self._copy_update_bytes: dict[int, int] = {}
        """Bytes of each memory domain while a copy is updated, by the table's number. Copies are updated one after the
        other, so that only the largest counts."""
        self._common_bytes = 0
        """Bytes of each memory domain for both."""
        self.ranks = [RankLoad() for _ in range(self._topology.world_size)]
        self.common_seconds = 0.0
        """Seconds of a step that tables take every rank, whichever ranks own their shards."""
        self.options: dict[int, ShardingOption] = {}
        """Option of each table, by the table's number."""
        self._shards: dict[int, list[PlacedShard]] = {}
        self._cost_of_shape: dict[tuple[int, bool, int, int], tuple[float, int]] = {}

    def has_room_for(self, options: Sequence[ShardingOption]) -> bool:
        """Whether all memory together is enough for all tables, however their shards are placed."""
        needed = sum(
            self._get_shard_cost(number, option, block)[1]
            for number, option in enumerate(options)
            for block in option.blocks
        )
        needed += self.count_split_bytes(options) * len(self._free)
        return min(self._free) >= 0 and needed <= sum(self._free)

    def count_split_bytes(self, options: Sequence[ShardingOption]) -> int:
        """Count the bytes of each memory domain for the split tables in `options`, whichever ranks own their shards."""
        return sum(self._count_split_table_bytes(option) for option in options if not option.is_replicated)

    def could_hold(self, number: int, option: ShardingOption, common_bytes: int) -> bool:
        """Whether an empty memory domain has room for one shard of a table, and for `common_bytes`."""
        needed = self._get_shard_cost(number, option, option.blocks[0])[1]
        if option.is_replicated:
            needed = (
                needed + self._memory.estimate_copy_update_bytes(option.table)
            ) * self._topology.ranks_per_memory_domain
        return needed + common_bytes <= self._empty_bytes

    @property
    def seconds(self) -> float:
        """Seconds that tables take the slowest rank in a step."""
        return max(load.seconds for load in self.ranks) + self.common_seconds

    @property
    def is_within_memory(self) -> bool:
        """Whether every memory domain has room for what it holds."""
        return min(self._free) >= self._common_bytes

    def get_shards(self, number: int) -> list[PlacedShard]:
        """Return the shards of table `number`, in the order of its option's blocks."""
        return self._shards[number]

    def fits(self, shard: PlacedShard, rank: int) -> bool:
        """Whether the memory of `rank` has room for the shard."""
        return shard.num_bytes <= self._get_free_bytes(self._topology.get_memory_domain(rank))

    def can_swap(self, shard: PlacedShard, other: PlacedShard) -> bool:
        """Whether there is room for each of two shards on the rank of the other."""
        here, there = self._topology.get_memory_domain(shard.rank), self._topology.get_memory_domain(other.rank)
        more = shard.num_bytes - other.num_bytes
        return here == there or (self._get_free_bytes(there) >= more and self._get_free_bytes(here) >= -more)

    def add(self, number: int, option: ShardingOption) -> None:
        """Place the shards of table `number` on the least loaded ranks.

        Raises NoRoomError if they have no room; the state is then unchanged.
        """
        shards = self._make_shards(number, option)
        # The bytes that the table takes of every memory domain count while ranks are chosen for its shards.
        self._add_common_bytes(number, option)
        ranks = self._choose_ranks(option, shards) if min(self._free) >= self._common_bytes else None
        self._subtract_common_bytes(number, option)
        if ranks is None:
            raise NoRoomError(option)
        self._place_table(number, option, shards, ranks)

    def remove(self, number: int) -> None:
        """Remove table `number` from its ranks."""
        for shard in self._shards.pop(number):
            self._remove_shard(shard)
        option = self.options.pop(number)
        self.common_seconds -= self._estimate_common_seconds(option)
        self._subtract_common_bytes(number, option)

    def restore_table(self, number: int, option: ShardingOption, ranks: Sequence[int]) -> None:
        """Place the shards of table `number` on the ranks that held them before it was removed."""
        self._place_table(number, option, self._make_shards(number, option), ranks)

    def take_snapshot(self) -> Snapshot:
        """Return the placement, for `restore_snapshot`."""
        return {
            number: (self.options[number], [shard.rank for shard in shards]) for number, shards in self._shards.items()
        }

    def restore_snapshot(self, snapshot: Snapshot) -> None:
        """Restore the placement that `take_snapshot` returned."""
        for number in list(self._shards):
            self.remove(number)
        for number, (option, ranks) in snapshot.items():
            self.restore_table(number, option, ranks)

    def move(self, shard: PlacedShard, rank: int) -> None:
        """Move a shard to `rank`."""
        self._remove_shard(shard)
        self._place_shard(shard, rank)

    def swap(self, shard: PlacedShard, other: PlacedShard) -> None:
        """Exchange the ranks of two shards."""
        here, there = shard.rank, other.rank
        self._remove_shard(shard)
        self._remove_shard(other)
        self._place_shard(shard, there)
        self._place_shard(other, here)

    def holds(self, rank: int, number: int) -> bool:
        """Whether `rank` holds a shard of table `number`."""
        return any(shard.table == number for shard in self.ranks[rank].shards)

    def _place_table(
        self, number: int, option: ShardingOption, shards: list[PlacedShard], ranks: Sequence[int]
    ) -> None:
        for shard, rank in zip(shards, ranks, strict=True):
            self._place_shard(shard, rank)
        self._shards[number], self.options[number] = shards, option
        self.common_seconds += self._estimate_common_seconds(option)
        self._add_common_bytes(number, option)

    def _get_free_bytes(self, memory_domain: int) -> int:
        return self._free[memory_domain] - self._common_bytes

    def _add_common_bytes(self, number: int, option: ShardingOption) -> None:
        if option.is_replicated:
            num_bytes = self._memory.estimate_copy_update_bytes(option.table) * self._topology.ranks_per_memory_domain
            self._copy_update_bytes[number] = num_bytes
        else:
            self._split_bytes += self._count_split_table_bytes(option)
        self._common_bytes = self._split_bytes + max(self._copy_update_bytes.values(), default=0)

    def _subtract_common_bytes(self, number: int, option: ShardingOption) -> None:
        if option.is_replicated:
            del self._copy_update_bytes[number]
        else:
            self._split_bytes -= self._count_split_table_bytes(option)
        self._common_bytes = self._split_bytes + max(self._copy_update_bytes.values(), default=0)

    def _count_split_table_bytes(self, option: ShardingOption) -> int:
        return (
            self._memory.estimate_split_table_bytes(option.table, option.blocks)
            * self._topology.ranks_per_memory_domain
        )

    def _place_shard(self, shard: PlacedShard, rank: int) -> None:
        shard.rank = rank
        load = self.ranks[rank]
        # A copy on every rank loads all ranks equally: the search has nothing to gain from it.
        if shard.seconds:
            load.shards.append(shard)
        load.seconds += shard.seconds
        load.num_bytes += shard.num_bytes
        self._free[self._topology.get_memory_domain(rank)] -= shard.num_bytes

    def _remove_shard(self, shard: PlacedShard) -> None:
        load = self.ranks[shard.rank]
        if shard.seconds:
            load.shards.remove(shard)
        # A fresh sum: after many additions and subtractions, rounding errors would decide which rank is the slowest.
        load.seconds = sum(other.seconds for other in load.shards)
        load.num_bytes -= shard.num_bytes
        self._free[self._topology.get_memory_domain(shard.rank)] += shard.num_bytes

    def _estimate_common_seconds(self, option: ShardingOption) -> float:
        if option.is_replicated:
            return self._costs.estimate_copy(option.table).seconds
        return self._costs.estimate_split_table(option.table, option.num_row_ranges).seconds

    def _make_shards(self, number: int, option: ShardingOption) -> list[PlacedShard]:
        is_movable = not (option.has_fixed_ranks or option.is_on_one_node)
        shards: list[PlacedShard] = []
        for block in option.blocks:
            seconds, num_bytes = self._get_shard_cost(number, option, block)
            shards.append(PlacedShard(number, block, seconds, num_bytes, is_movable, option))
        return shards

    def _get_shard_cost(self, number: int, option: ShardingOption, block: Block) -> tuple[float, int]:
        """Return the seconds and bytes of a shard on its rank.

        Kept by table and shape: the search tries the same few shapes thousands of times.
        """
        key = (number, option.is_replicated, block.num_rows, block.num_columns)
        if key not in self._cost_of_shape:
            shape = option.table, block.num_rows, block.num_columns
            self._cost_of_shape[key] = (
                # The time of a copy is in `common_seconds`.
                (0.0, self._memory.estimate_copy_bytes(option.table))
                if option.is_replicated
                else (self._costs.estimate_shard(*shape).seconds, self._memory.estimate_shard_bytes(*shape))
            )
        return self._cost_of_shape[key]

    def _choose_ranks(self, option: ShardingOption, shards: list[PlacedShard]) -> list[int] | None:
        """Return a rank for each shard; None if there is no room."""
        if option.has_fixed_ranks:
            ranks = [shard.block.rank for shard in shards]
            return ranks if self._have_room(shards, ranks) else None
        if not option.is_on_one_node:
            return self._choose_least_loaded(shards, option.ranks)
        found = [
            ranks
            for _, of_node in groupby(option.ranks, self._topology.get_node)
            if (ranks := self._choose_least_loaded(shards, list(of_node)))
        ]
        return min(found, key=lambda ranks: self._compute_height(shards, ranks), default=None)

    def _have_room(self, shards: list[PlacedShard], ranks: list[int]) -> bool:
        """Whether every shard has room on its rank, when ranks of one memory domain get several."""
        needed: dict[int, int] = {}
        for shard, rank in zip(shards, ranks, strict=True):
            memory_domain = self._topology.get_memory_domain(rank)
            needed[memory_domain] = needed.get(memory_domain, 0) + shard.num_bytes
        return all(self._get_free_bytes(domain) >= num_bytes for domain, num_bytes in needed.items())

    def _compute_height(self, shards: list[PlacedShard], ranks: list[int]) -> tuple[float, int]:
        """Return the largest load among `ranks` once they have the shards, and for equal loads the most bytes now."""
        after = [self.ranks[rank].seconds + shard.seconds for shard, rank in zip(shards, ranks, strict=True)]
        return max(after), max(self.ranks[rank].num_bytes for rank in ranks)

    def _choose_least_loaded(self, shards: list[PlacedShard], allowed: Sequence[int]) -> list[int] | None:
        """Return distinct ranks with room, the least loaded for the largest shard; None if there are too few.

        Among equally loaded ranks the one with the fewest bytes goes first.
        """
        if len(shards) > len(allowed):
            return None
        free_ranks = sorted(allowed, key=lambda rank: (self.ranks[rank].seconds, self.ranks[rank].num_bytes, rank))
        used_bytes: dict[int, int] = {}
        chosen: dict[int, int] = {}
        for number in sorted(range(len(shards)), key=lambda number: -shards[number].num_bytes):
            shard = shards[number]
            for rank in free_ranks:
                memory_domain = self._topology.get_memory_domain(rank)
                if used_bytes.get(memory_domain, 0) + shard.num_bytes <= self._get_free_bytes(memory_domain):
                    break
            else:
                return None
            free_ranks.remove(rank)
            used_bytes[memory_domain] = used_bytes.get(memory_domain, 0) + shard.num_bytes
            chosen[number] = rank
        return [chosen[number] for number in range(len(shards))]
