"""Finds a plan: the dearest tables first onto the least loaded ranks, then better step by step.

What is made small is the step of the slowest rank; no rank ever gets more than its memory holds. The result depends on
the request alone: nothing in here looks at a clock or draws a number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from sharding.planner.cost_estimator import Costs
from sharding.planner.enumerator import Choices
from sharding.planner.memory_estimator import Memory
from sharding.planner.partitioner import NoRoomError, Part, Placement, Split
from sharding.planner.request import PlanRequest

MOST_ROUNDS = 5_000
MOST_TRIES = 24
"""To find room for all tables, each with smaller parts than the one before."""
LEAST_GAIN = 0.08
"""Of the tables' share of a step, for which a table is parted otherwise than in the plainest way."""
SLACK = 0.005
"""What the whole step may lose when one of several equally slow ranks gains; the best plan of all is kept."""
ROUNDING = 1e-9


def find_placement(
    request: PlanRequest, costs: Costs, splits: Sequence[Split], is_automatic: Sequence[bool], *, is_improved: bool
) -> Placement:
    """splits: of every table, to begin with; those that are automatic may be parted otherwise.

    is_improved: whether the plan is to be good, and not only one that fits. Raises NoRoomError.
    """
    choices = Choices(request, costs)
    memory = _memory(request, choices, splits, is_automatic)
    orders = (partial(_by_seconds, costs, memory), partial(_by_memory, memory))
    placement = _dealt_out(lambda: Placement(request, costs, memory), orders, choices, list(splits), is_automatic)
    if is_improved:
        _level(placement)
        _improve(placement, choices, is_automatic)
    return placement


def _memory(request: PlanRequest, choices: Choices, splits: Sequence[Split], is_automatic: Sequence[bool]) -> Memory:
    """Never less than what the plan will take: as if every table had a copy everywhere that may have one."""
    split_columns = 0
    for split, is_chosen in zip(splits, is_automatic, strict=True):
        if is_chosen and not choices.may_copy(split.table, split.ranks):
            split_columns += split.table.embedding_dim
        elif not is_chosen and split.type != "data_parallel":
            split_columns += sum(part.num_columns for part in split.parts)
    return Memory(request, split_columns)


def _dealt_out(
    blank: Callable[[], Placement],
    orders: Sequence[Callable[[Sequence[Split]], list[int]]],
    choices: Choices,
    splits: list[Split],
    is_automatic: Sequence[bool],
) -> Placement:
    """By load, or where that leaves no room, by memory; what finds none then goes in smaller parts."""
    if hopeless := _hopeless(blank(), splits, is_automatic):
        raise NoRoomError(hopeless)
    failed = NoRoomError(max(splits, key=_part_bytes))
    for _ in range(MOST_TRIES):
        if not blank().has_room_for(splits) and not _without_copies(choices, splits, is_automatic):
            break
        for order in orders:
            try:
                return _placed(blank(), splits, order(splits))
            except NoRoomError as error:
                failed = error
        if not _make_room(choices, splits, is_automatic, failed.split):
            break
    raise failed


def _hopeless(empty: Placement, splits: Sequence[Split], is_automatic: Sequence[bool]) -> Split | None:
    """One that stays as it is and finds no room, however the others are parted: in more parts they take no less."""
    common_bytes = empty.common_bytes(splits)
    fixed = ((number, split) for number, split in enumerate(splits) if not is_automatic[number])
    return next((split for number, split in fixed if not empty.could_hold(number, split, common_bytes)), None)


def _without_copies(choices: Choices, splits: list[Split], is_automatic: Sequence[bool]) -> bool:
    """Have tables once that would be on every rank; whether there are any."""
    copied = [n for n, split in enumerate(splits) if is_automatic[n] and split.type == "data_parallel"]
    for number in copied:
        splits[number] = choices.whole(splits[number].table, splits[number].ranks)
    return bool(copied)


def _make_room(choices: Choices, splits: list[Split], is_automatic: Sequence[bool], failed: Split) -> bool:
    """For a split that found none when the largest went first: part what has a part as large; whether there is any."""
    is_free = any(is_chosen and split is failed for split, is_chosen in zip(splits, is_automatic, strict=True))
    # What stays as it is was there before all that is smaller, but for copies.
    if not is_free and _without_copies(choices, splits, is_automatic):
        return True
    finer = {
        number: split
        for number, of_table in enumerate(splits)
        if is_automatic[number] and (split := choices.finer(of_table))
    }
    sizes = {number: _part_bytes(splits[number]) for number in finer}
    bar = _part_bytes(failed)
    if is_free:
        # It may be too small to be parted itself.
        bar = min(bar, max(sizes.values(), default=0))
    parted = [number for number in finer if sizes[number] >= bar]
    for number in parted:
        splits[number] = finer[number]
    return bool(parted)


def _placed(placement: Placement, splits: Sequence[Split], order: Sequence[int]) -> Placement:
    for number in order:
        placement.add(number, splits[number])
    return placement


def _by_seconds(costs: Costs, memory: Memory, splits: Sequence[Split]) -> list[int]:
    def load(split: Split) -> float:
        return max(costs.block(split.table, part.num_rows, part.num_columns).seconds for part in split.parts[:1])

    keys = [(not split.is_fixed, -round(load(split), 12), -_largest_part(memory, split)) for split in splits]
    return sorted(range(len(splits)), key=keys.__getitem__)


def _by_memory(memory: Memory, splits: Sequence[Split]) -> list[int]:
    keys = [(not split.is_fixed, -_largest_part(memory, split)) for split in splits]
    return sorted(range(len(splits)), key=keys.__getitem__)


def _largest_part(memory: Memory, split: Split) -> int:
    return memory.block(split.table, split.parts[0].num_rows, split.parts[0].num_columns)


def _part_bytes(split: Split) -> int:
    """Of the weights of its largest part."""
    return split.parts[0].weight_bytes


def _level(placement: Placement) -> None:
    """Swap parts of the fullest rank for smaller ones that take as long elsewhere: full ranks stand in the way of what
    makes a step shorter, as copies on every rank do."""
    much = SLACK * max(held.seconds for held in placement.ranks)
    for _ in range(2 * len(placement.ranks)):
        full = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].num_bytes)
        most = placement.ranks[full].num_bytes
        best: tuple[int, Part, Part] | None = None
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


def _swaps(placement: Placement, rank: int) -> Iterator[tuple[Part, Part]]:
    """A part of `rank` and one of another; the first may be in the other's place."""
    for part in _movable(placement, rank):
        for elsewhere, held in enumerate(placement.ranks):
            if elsewhere == rank or not part.may_be_on(elsewhere) or placement.holds(elsewhere, part.table):
                continue
            for other in held.parts:
                if other.is_movable and other.may_be_on(rank):
                    yield part, other


def _improve(placement: Placement, choices: Choices, is_automatic: Sequence[bool]) -> None:
    best, seconds = placement.snapshot(), placement.seconds
    # Each of equally slow ranks takes a round before the step gets any shorter.
    most_vain, num_vain = 2 * len(placement.ranks), 0
    for _ in range(MOST_ROUNDS):
        worst = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].seconds)
        if not (
            _moved(placement, worst)
            or _swapped(placement, worst)
            or _parted(placement, choices, is_automatic, worst)
            or _gathered(placement, choices, is_automatic)
        ):
            break
        num_vain += 1
        if placement.seconds < seconds * (1 - ROUNDING):
            best, seconds, num_vain = placement.snapshot(), placement.seconds, 0
        elif num_vain > most_vain:
            break
    placement.return_to(best)


def _moved(placement: Placement, worst: int) -> bool:
    """Move one part of the slowest rank to where it makes the slower of both fastest."""
    bar = placement.ranks[worst].seconds * (1 - ROUNDING)
    best: tuple[float, Part, int] | None = None
    for part in _movable(placement, worst):
        for rank in part.split.ranks:
            held = placement.ranks[rank]
            height = max(held.seconds + part.seconds, placement.ranks[worst].seconds - part.seconds)
            if height >= bar or (best and height >= best[0]) or placement.holds(rank, part.table):
                continue
            if placement.fits(part, rank):
                best = (height, part, rank)
    if best:
        placement.move(best[1], best[2])
    return best is not None


def _swapped(placement: Placement, worst: int) -> bool:
    """Swap one part of the slowest rank for a cheaper one of another."""
    high = placement.ranks[worst].seconds
    best: tuple[float, Part, Part] | None = None
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


def _movable(placement: Placement, rank: int) -> Iterator[Part]:
    return (part for part in placement.ranks[rank].parts if part.is_movable)


def _parted(placement: Placement, choices: Choices, is_automatic: Sequence[bool], worst: int) -> bool:
    """Part one table of the slowest rank otherwise, where that is worth it."""
    before = placement.seconds
    needed = before - LEAST_GAIN * before
    best: tuple[float, int, Split, Split] | None = None
    for number in sorted({part.table for part in placement.ranks[worst].parts}):
        if not is_automatic[number]:
            continue
        old, ranks = placement.splits[number], [part.rank for part in placement.parts_of(number)]
        placement.remove(number)
        for split in _others(choices, old):
            try:
                placement.add(number, split)
            except NoRoomError:
                continue
            touched = chain([worst], (part.rank for part in placement.parts_of(number) if part.seconds))
            height = max(placement.ranks[rank].seconds for rank in touched) + placement.common_seconds
            if height <= needed and placement.seconds <= before * (1 + SLACK) and (not best or height < best[0]):
                best = (height, number, old, split)
            placement.remove(number)
        placement.restore(number, old, ranks)
    if best:
        placement.remove(best[1])
        placement.add(best[1], best[3])
    return best is not None


def _others(choices: Choices, old: Split) -> Iterator[Split]:
    """Every way to part a table. One that was parted to find room still is in parts for that reason."""
    for split in choices.all(old.table, old.ranks):
        is_in_parts = split.type not in ("table_wise", "data_parallel")
        yield replace(split, reason=old.reason) if is_in_parts else split


def _gathered(placement: Placement, choices: Choices, is_automatic: Sequence[bool]) -> bool:
    """Have one table on a single rank that every rank has a copy of, where a rank with little to do can take it."""
    copied = (n for n, split in sorted(placement.splits.items()) if is_automatic[n] and split.type == "data_parallel")
    for number in copied:
        before, old = placement.seconds, placement.splits[number]
        ranks = [part.rank for part in placement.parts_of(number)]
        placement.remove(number)
        try:
            placement.add(number, choices.whole(old.table, old.ranks))
        except NoRoomError:
            placement.restore(number, old, ranks)
            continue
        if placement.seconds < before * (1 - ROUNDING):
            return True
        placement.remove(number)
        placement.restore(number, old, ranks)
    return False
