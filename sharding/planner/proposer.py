"""Finds a plan: the dearest tables first onto the least loaded ranks, then better step by step.

What is made small is the step of the slowest rank; no rank ever gets more than its memory holds. The result depends on
the request alone: nothing in here looks at a clock or draws a number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import Enumerator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.partitioner import NoRoomError, PlacedShard, PlacementState, ShardingOption
from sharding.planner.request import PlanRequest

MAX_ROUNDS = 5_000
MAX_TRIES = 24
"""To find room for all tables, each with smaller parts than the one before."""
MIN_GAIN = 0.08
"""Of the tables' share of a step, for which a table is parted otherwise than in the plainest way."""
SLACK = 0.005
"""What the whole step may lose when one of several equally slow ranks gains; the best plan of all is kept."""
ROUNDING = 1e-9


def find_placement(
    request: PlanRequest,
    costs: CostEstimator,
    splits: Sequence[ShardingOption],
    is_automatic: Sequence[bool],
    *,
    is_improved: bool,
) -> PlacementState:
    """splits: of every table, to begin with; those that are automatic may be parted otherwise.

    is_improved: whether the plan is to be good, and not only one that fits. Raises NoRoomError.
    """
    choices = Enumerator(request, costs)
    memory = _memory(request, choices, splits, is_automatic)
    orders = (partial(_by_seconds, costs, memory), partial(_by_memory, memory))
    placement = _partition(lambda: PlacementState(request, costs, memory), orders, choices, list(splits), is_automatic)
    if is_improved:
        _level_memory(placement)
        _improve(placement, choices, is_automatic)
    return placement


def _memory(
    request: PlanRequest, choices: Enumerator, splits: Sequence[ShardingOption], is_automatic: Sequence[bool]
) -> MemoryEstimator:
    """Never less than what the plan will take: as if every table had a copy everywhere that may have one."""
    split_columns = 0
    for split, is_chosen in zip(splits, is_automatic, strict=True):
        if is_chosen and not choices.may_replicate(split.table, split.ranks):
            split_columns += split.table.embedding_dim
        elif not is_chosen and split.type != "data_parallel":
            split_columns += sum(part.num_columns for part in split.blocks)
    return MemoryEstimator(request, split_columns)


def _partition(
    blank: Callable[[], PlacementState],
    orders: Sequence[Callable[[Sequence[ShardingOption]], list[int]]],
    choices: Enumerator,
    splits: list[ShardingOption],
    is_automatic: Sequence[bool],
) -> PlacementState:
    """By load, or where that leaves no room, by memory; what finds none then goes in smaller parts."""
    if hopeless := _find_hopeless(blank(), splits, is_automatic):
        raise NoRoomError(hopeless)
    failed = NoRoomError(max(splits, key=_shard_weight_bytes))
    for _ in range(MAX_TRIES):
        if not blank().has_room_for(splits) and not _unreplicate_all(choices, splits, is_automatic):
            break
        for order in orders:
            try:
                return _place_all(blank(), splits, order(splits))
            except NoRoomError as error:
                failed = error
        if not _make_room(choices, splits, is_automatic, failed.split):
            break
    raise failed


def _find_hopeless(
    empty: PlacementState, splits: Sequence[ShardingOption], is_automatic: Sequence[bool]
) -> ShardingOption | None:
    """One that stays as it is and finds no room, however the others are parted: in more parts they take no less."""
    common_bytes = empty.common_bytes(splits)
    fixed = ((number, split) for number, split in enumerate(splits) if not is_automatic[number])
    return next((split for number, split in fixed if not empty.could_hold(number, split, common_bytes)), None)


def _unreplicate_all(choices: Enumerator, splits: list[ShardingOption], is_automatic: Sequence[bool]) -> bool:
    """Have tables once that would be on every rank; whether there are any."""
    copied = [n for n, split in enumerate(splits) if is_automatic[n] and split.type == "data_parallel"]
    for number in copied:
        splits[number] = choices.table_wise(splits[number].table, splits[number].ranks)
    return bool(copied)


def _make_room(
    choices: Enumerator, splits: list[ShardingOption], is_automatic: Sequence[bool], failed: ShardingOption
) -> bool:
    """For a split that found none when the largest went first: part what has a part as large; whether there is any."""
    is_free = any(is_chosen and split is failed for split, is_chosen in zip(splits, is_automatic, strict=True))
    # What stays as it is was there before all that is smaller, but for copies.
    if not is_free and _unreplicate_all(choices, splits, is_automatic):
        return True
    finer = {
        number: split
        for number, of_table in enumerate(splits)
        if is_automatic[number] and (split := choices.finer_option(of_table))
    }
    sizes = {number: _shard_weight_bytes(splits[number]) for number in finer}
    bar = _shard_weight_bytes(failed)
    if is_free:
        # It may be too small to be parted itself.
        bar = min(bar, max(sizes.values(), default=0))
    parted = [number for number in finer if sizes[number] >= bar]
    for number in parted:
        splits[number] = finer[number]
    return bool(parted)


def _place_all(placement: PlacementState, splits: Sequence[ShardingOption], order: Sequence[int]) -> PlacementState:
    for number in order:
        placement.add(number, splits[number])
    return placement


def _by_seconds(costs: CostEstimator, memory: MemoryEstimator, splits: Sequence[ShardingOption]) -> list[int]:
    def load(split: ShardingOption) -> float:
        return max(costs.block(split.table, part.num_rows, part.num_columns).seconds for part in split.blocks[:1])

    keys = [(not split.is_fixed, -round(load(split), 12), -_largest_shard_bytes(memory, split)) for split in splits]
    return sorted(range(len(splits)), key=keys.__getitem__)


def _by_memory(memory: MemoryEstimator, splits: Sequence[ShardingOption]) -> list[int]:
    keys = [(not split.is_fixed, -_largest_shard_bytes(memory, split)) for split in splits]
    return sorted(range(len(splits)), key=keys.__getitem__)


def _largest_shard_bytes(memory: MemoryEstimator, split: ShardingOption) -> int:
    return memory.block(split.table, split.blocks[0].num_rows, split.blocks[0].num_columns)


def _shard_weight_bytes(split: ShardingOption) -> int:
    """Of the weights of its largest part."""
    return split.blocks[0].weight_bytes


def _level_memory(placement: PlacementState) -> None:
    """Swap parts of the fullest rank for smaller ones that take as long elsewhere: full ranks stand in the way of what
    makes a step shorter, as copies on every rank do."""
    much = SLACK * max(held.seconds for held in placement.ranks)
    for _ in range(2 * len(placement.ranks)):
        full = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].num_bytes)
        most = placement.ranks[full].num_bytes
        best: tuple[int, PlacedShard, PlacedShard] | None = None
        for part, other in _swaps(placement, full):
            less = part.num_bytes - other.num_bytes
            height = max(most - less, placement.ranks[other.rank].num_bytes + less)
            if height >= most or (best and height >= best[0]) or abs(part.seconds - other.seconds) > much:
                continue
            if not placement.holds(full, other.table) and placement.fits_instead(part, other):
                best = (height, part, other)
        if best is None:
            break
        placement.swap(best[1], best[2])


def _swaps(placement: PlacementState, rank: int) -> Iterator[tuple[PlacedShard, PlacedShard]]:
    """A part of `rank` and one of another; the first may be in the other's place."""
    for part in _movable_shards(placement, rank):
        for elsewhere, held in enumerate(placement.ranks):
            if elsewhere == rank or not part.may_be_on(elsewhere) or placement.holds(elsewhere, part.table):
                continue
            for other in held.shards:
                if other.is_movable and other.may_be_on(rank):
                    yield part, other


def _improve(placement: PlacementState, choices: Enumerator, is_automatic: Sequence[bool]) -> None:
    best, seconds = placement.snapshot(), placement.seconds
    # Each of equally slow ranks takes a round before the step gets any shorter.
    most_vain, num_vain = 2 * len(placement.ranks), 0
    for _ in range(MAX_ROUNDS):
        worst = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].seconds)
        if not (
            try_move(placement, worst)
            or try_swap(placement, worst)
            or try_resplit(placement, choices, is_automatic, worst)
            or try_unreplicate(placement, choices, is_automatic)
        ):
            break
        num_vain += 1
        if placement.seconds < seconds * (1 - ROUNDING):
            best, seconds, num_vain = placement.snapshot(), placement.seconds, 0
        elif num_vain > most_vain:
            break
    placement.return_to(best)


def try_move(placement: PlacementState, worst: int) -> bool:
    """Move one part of the slowest rank to where it makes the slower of both fastest."""
    bar = placement.ranks[worst].seconds * (1 - ROUNDING)
    best: tuple[float, PlacedShard, int] | None = None
    for part in _movable_shards(placement, worst):
        for rank in part.option.ranks:
            held = placement.ranks[rank]
            height = max(held.seconds + part.seconds, placement.ranks[worst].seconds - part.seconds)
            if height >= bar or (best and height >= best[0]) or placement.holds(rank, part.table):
                continue
            if placement.fits(part, rank):
                best = (height, part, rank)
    if best:
        placement.move(best[1], best[2])
    return best is not None


def try_swap(placement: PlacementState, worst: int) -> bool:
    """Swap one part of the slowest rank for a cheaper one of another."""
    high = placement.ranks[worst].seconds
    best: tuple[float, PlacedShard, PlacedShard] | None = None
    for part, other in _swaps(placement, worst):
        less = part.seconds - other.seconds
        height = max(high - less, placement.ranks[other.rank].seconds + less)
        if height >= high * (1 - ROUNDING) or (best and height >= best[0]):
            continue
        if not placement.holds(worst, other.table) and placement.fits_instead(part, other):
            best = (height, part, other)
    if best:
        placement.swap(best[1], best[2])
    return best is not None


def _movable_shards(placement: PlacementState, rank: int) -> Iterator[PlacedShard]:
    return (part for part in placement.ranks[rank].shards if part.is_movable)


def try_resplit(placement: PlacementState, choices: Enumerator, is_automatic: Sequence[bool], worst: int) -> bool:
    """Part one table of the slowest rank otherwise, where that is worth it."""
    before = placement.seconds
    needed = before - MIN_GAIN * before
    best: tuple[float, int, ShardingOption, ShardingOption] | None = None
    for number in sorted({part.table for part in placement.ranks[worst].shards}):
        if not is_automatic[number]:
            continue
        old, ranks = placement.options[number], [part.rank for part in placement.shards_of(number)]
        placement.remove(number)
        for split in _others(choices, old):
            try:
                placement.add(number, split)
            except NoRoomError:
                continue
            touched = chain([worst], (part.rank for part in placement.shards_of(number) if part.seconds))
            height = max(placement.ranks[rank].seconds for rank in touched) + placement.common_seconds
            if height <= needed and placement.seconds <= before * (1 + SLACK) and (not best or height < best[0]):
                best = (height, number, old, split)
            placement.remove(number)
        placement.restore(number, old, ranks)
    if best:
        placement.remove(best[1])
        placement.add(best[1], best[3])
    return best is not None


def _others(choices: Enumerator, old: ShardingOption) -> Iterator[ShardingOption]:
    """Every way to part a table. One that was parted to find room still is in parts for that reason."""
    for split in choices.all_options(old.table, old.ranks):
        is_in_parts = split.type not in ("table_wise", "data_parallel")
        yield replace(split, reason=old.reason) if is_in_parts else split


def try_unreplicate(placement: PlacementState, choices: Enumerator, is_automatic: Sequence[bool]) -> bool:
    """Have one table on a single rank that every rank has a copy of, where a rank with little to do can take it."""
    copied = (n for n, split in sorted(placement.options.items()) if is_automatic[n] and split.type == "data_parallel")
    for number in copied:
        before, old = placement.seconds, placement.options[number]
        ranks = [part.rank for part in placement.shards_of(number)]
        placement.remove(number)
        try:
            placement.add(number, choices.table_wise(old.table, old.ranks))
        except NoRoomError:
            placement.restore(number, old, ranks)
            continue
        if placement.seconds < before * (1 - ROUNDING):
            return True
        placement.remove(number)
        placement.restore(number, old, ranks)
    return False
