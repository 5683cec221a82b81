"""The search for a placement of all tables: the most expensive ones first onto the least loaded ranks, then local
search.

The search shortens the step of the slowest rank; no rank ever gets more than its memory holds. The result depends on
the request alone: nothing here reads a clock or draws a random number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.enumerator import Enumerator
from sharding.planner.memory_estimator import MemoryEstimator
from sharding.planner.partitioner import NoRoomError, PlacedShard, PlacementState
from sharding.planner.types import PlanRequest, ShardingOption

MAX_ROUNDS = 5_000
"""Rounds of the local search; each changes one shard or table."""
MAX_TRIES = 24
"""Attempts to fit all tables into memory, each with smaller shards than the one before."""
MIN_GAIN = 0.08
"""Share of the tables' time in a step that another option of a table has to save: more shards mean more overhead in a
run than the estimate knows."""
SLACK = 0.005
"""Share of a step by which the whole step may get longer when one of several equally slow ranks gains. The best
placement of all rounds is kept."""
ROUNDING = 1e-9
"""Relative difference of seconds that counts as equal: sums in another order differ by less."""


def find_placement(
    request: PlanRequest, costs: CostEstimator, options: Sequence[ShardingOption], *, is_improved: bool
) -> PlacementState:
    """Find a placement of all tables. Raises NoRoomError if there is none.

    options: the option of every table to begin with; automatic ones may be replaced. is_improved: whether to search for
    a fast placement, and not only for one that fits.
    """
    enumerator = Enumerator(request, costs)
    placement = _search(MemoryEstimator(request, _count_columns(options)), request, costs, options, is_improved)
    if _is_within_memory(request, costs, placement):
        return placement
    # So many tables were replicated that slices hold more samples than was assumed.
    return _search(_make_safe_estimator(request, enumerator, options), request, costs, options, is_improved)


def _search(
    memory: MemoryEstimator,
    request: PlanRequest,
    costs: CostEstimator,
    options: Sequence[ShardingOption],
    is_improved: bool,
) -> PlacementState:
    enumerator = Enumerator(request, costs)
    orders = (partial(_order_by_seconds, costs, memory), partial(_order_by_bytes, memory))
    placement = _partition(lambda: PlacementState(request, costs, memory), orders, enumerator, list(options))
    if is_improved:
        _level_memory(placement)
        _improve(placement, enumerator)
    return placement


def _count_columns(options: Sequence[ShardingOption]) -> int:
    """Count the columns of tables that are split, if no automatic one is replicated and each is split only once."""
    return sum(
        option.table.embedding_dim if option.is_automatic else sum(block.num_columns for block in option.blocks)
        for option in options
        if option.is_automatic or not option.is_replicated
    )


def _is_within_memory(request: PlanRequest, costs: CostEstimator, placement: PlacementState) -> bool:
    """Whether memory has room for a placement, with slices as large as its own."""
    options = placement.options.values()
    columns = sum(block.num_columns for option in options if not option.is_replicated for block in option.blocks)
    exact = PlacementState(request, costs, MemoryEstimator(request, columns))
    exact.restore_snapshot(placement.take_snapshot())
    return exact.is_within_memory


def _make_safe_estimator(
    request: PlanRequest, enumerator: Enumerator, options: Sequence[ShardingOption]
) -> MemoryEstimator:
    """Make an estimator that never counts less than the final plan takes.

    Slices hold more samples the fewer columns are split. The search may yet replicate any table that may be: none of
    these counts as split.
    """
    split_columns = 0
    for option in options:
        if option.is_automatic and not enumerator.may_replicate(option.table, option.ranks):
            # However it is split, it has its columns at least once.
            split_columns += option.table.embedding_dim
        elif not option.is_automatic and not option.is_replicated:
            split_columns += sum(block.num_columns for block in option.blocks)
    return MemoryEstimator(request, split_columns)


def _partition(
    make_empty: Callable[[], PlacementState],
    orders: Sequence[Callable[[Sequence[ShardingOption]], list[int]]],
    enumerator: Enumerator,
    options: list[ShardingOption],
) -> PlacementState:
    """Place all tables in the first of `orders` in which all fit. Raises NoRoomError.

    If there is none, tables are split further, and all orders are tried again. Changes `options`.
    """
    if hopeless := _find_hopeless(make_empty(), options):
        raise NoRoomError(hopeless)
    failed = NoRoomError(max(options, key=_get_shard_weight_bytes))
    for _ in range(MAX_TRIES):
        # Smaller shards do not take less in total; only tables that are no longer replicated do.
        if not make_empty().has_room_for(options) and not _unreplicate_all(enumerator, options):
            break
        for order in orders:
            try:
                return _place_all(make_empty(), options, order(options))
            except NoRoomError as error:
                failed = error
        if not _make_room(enumerator, options, failed.option):
            break
    raise failed


def _find_hopeless(empty: PlacementState, options: Sequence[ShardingOption]) -> ShardingOption | None:
    """Return a fixed option that does not fit even into an empty memory; None if all do.

    How the automatic tables are split makes no difference: with more shards they take no less of every memory.
    """
    common_bytes = empty.count_split_bytes(options)
    fixed = ((number, option) for number, option in enumerate(options) if not option.is_automatic)
    return next((option for number, option in fixed if not empty.could_hold(number, option, common_bytes)), None)


def _unreplicate_all(enumerator: Enumerator, options: list[ShardingOption]) -> bool:
    """Make every automatic copy a whole table on one rank. Return whether there were any."""
    replicated = [number for number, option in enumerate(options) if option.is_automatic and option.is_replicated]
    for number in replicated:
        options[number] = enumerator.make_table_wise(options[number].table, options[number].ranks)
    return bool(replicated)


def _make_room(enumerator: Enumerator, options: list[ShardingOption], failed: ShardingOption) -> bool:
    """Split further the automatic tables whose shards are as large as the shards of `failed`.

    Return whether there were any.
    """
    is_free = any(option.is_automatic and option is failed for option in options)
    # A fixed table was placed before all smaller ones: only copies, which are on every rank, can make room for it.
    if not is_free and _unreplicate_all(enumerator, options):
        return True
    finer = {
        number: finer_option
        for number, option in enumerate(options)
        if option.is_automatic and (finer_option := enumerator.make_finer_option(option))
    }
    sizes = {number: _get_shard_weight_bytes(options[number]) for number in finer}
    min_bytes = _get_shard_weight_bytes(failed)
    if is_free:
        # The table itself may be too small to split: then the largest of those that can be split are.
        min_bytes = min(min_bytes, max(sizes.values(), default=0))
    to_split = [number for number in finer if sizes[number] >= min_bytes]
    for number in to_split:
        options[number] = finer[number]
    return bool(to_split)


def _place_all(placement: PlacementState, options: Sequence[ShardingOption], order: Sequence[int]) -> PlacementState:
    for number in order:
        placement.add(number, options[number])
    return placement


def _order_by_seconds(costs: CostEstimator, memory: MemoryEstimator, options: Sequence[ShardingOption]) -> list[int]:
    """Return the numbers of the tables: fixed ranks first, then by seconds of a shard, then by its bytes, descending.

    Placing the longest first onto the least loaded is the LPT rule of scheduling. Tables with fixed ranks go first,
    since the others can avoid ranks that these have loaded.
    """

    def load(option: ShardingOption) -> float:
        block = option.blocks[0]
        return costs.estimate_shard(option.table, block.num_rows, block.num_columns).seconds

    # Rounded, so that tables of equal cost are ordered by bytes and not by rounding errors.
    keys = [
        (not option.has_fixed_ranks, -round(load(option), 12), -_estimate_first_shard_bytes(memory, option))
        for option in options
    ]
    return sorted(range(len(options)), key=keys.__getitem__)


def _order_by_bytes(memory: MemoryEstimator, options: Sequence[ShardingOption]) -> list[int]:
    """Return the numbers of the tables: fixed ranks first, then by bytes of a shard, descending."""
    keys = [(not option.has_fixed_ranks, -_estimate_first_shard_bytes(memory, option)) for option in options]
    return sorted(range(len(options)), key=keys.__getitem__)


def _estimate_first_shard_bytes(memory: MemoryEstimator, option: ShardingOption) -> int:
    return memory.estimate_shard_bytes(option.table, option.blocks[0].num_rows, option.blocks[0].num_columns)


def _get_shard_weight_bytes(option: ShardingOption) -> int:
    """Return the weight bytes of the first shard: none is much larger."""
    return option.blocks[0].count_weight_bytes(option.table.dtype)


def _level_memory(placement: PlacementState) -> None:
    """Swap shards of the fullest rank for smaller ones that take as long elsewhere.

    A full rank prevents changes that shorten a step: no shard can move to it, and no table can be replicated, which
    needs room on every rank.
    """
    max_difference = SLACK * max(load.seconds for load in placement.ranks)
    for _ in range(2 * len(placement.ranks)):
        full = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].num_bytes)
        most = placement.ranks[full].num_bytes
        best: tuple[int, PlacedShard, PlacedShard] | None = None
        for shard, other in _list_swaps(placement, full):
            less = shard.num_bytes - other.num_bytes
            height = max(most - less, placement.ranks[other.rank].num_bytes + less)
            if height >= most or (best and height >= best[0]) or abs(shard.seconds - other.seconds) > max_difference:
                continue
            if not placement.holds(full, other.table) and placement.can_swap(shard, other):
                best = (height, shard, other)
        if best is None:
            break
        placement.swap(best[1], best[2])


def _list_swaps(placement: PlacementState, rank: int) -> Iterator[tuple[PlacedShard, PlacedShard]]:
    """Yield pairs of a shard of `rank` and one of another rank that may change places.

    A rank holds one shard of a table at most: pairs that would give the other rank two are left out. The caller checks,
    after its cheaper conditions, whether `rank` would hold two and whether both fit.
    """
    for shard in _list_movable_shards(placement, rank):
        for elsewhere, load in enumerate(placement.ranks):
            if elsewhere == rank or not shard.may_be_on(elsewhere) or placement.holds(elsewhere, shard.table):
                continue
            for other in load.shards:
                if other.is_movable and other.may_be_on(rank):
                    yield shard, other


def _list_movable_shards(placement: PlacementState, rank: int) -> Iterator[PlacedShard]:
    return (shard for shard in placement.ranks[rank].shards if shard.is_movable)


def _improve(placement: PlacementState, enumerator: Enumerator) -> None:
    """Change the slowest rank round by round, until nothing helps, and keep the best placement of all rounds."""
    best, seconds = placement.take_snapshot(), placement.seconds
    # Each of several equally slow ranks needs a round before the step gets any shorter.
    max_vain_rounds, num_vain_rounds = 2 * len(placement.ranks), 0
    for _ in range(MAX_ROUNDS):
        slowest = max(range(len(placement.ranks)), key=lambda rank: placement.ranks[rank].seconds)
        # From the cheapest change to the most expensive: a move keeps all options, a new option adds overhead.
        if not (
            _try_move(placement, slowest)
            or _try_swap(placement, slowest)
            or _try_resplit(placement, enumerator, slowest)
            or _try_unreplicate(placement, enumerator)
        ):
            break
        num_vain_rounds += 1
        if placement.seconds < seconds * (1 - ROUNDING):
            best, seconds, num_vain_rounds = placement.take_snapshot(), placement.seconds, 0
        elif num_vain_rounds > max_vain_rounds:
            break
    placement.restore_snapshot(best)


def _try_move(placement: PlacementState, slowest: int) -> bool:
    """Move the shard of the slowest rank, to the rank, that make the slower of both ranks fastest.

    Return whether any move makes it faster than the slowest rank was.
    """
    max_height = placement.ranks[slowest].seconds * (1 - ROUNDING)
    best: tuple[float, PlacedShard, int] | None = None
    for shard in _list_movable_shards(placement, slowest):
        for rank in shard.option.ranks:
            load = placement.ranks[rank]
            height = max(load.seconds + shard.seconds, placement.ranks[slowest].seconds - shard.seconds)
            if height >= max_height or (best and height >= best[0]) or placement.holds(rank, shard.table):
                continue
            if placement.fits(shard, rank):
                best = (height, shard, rank)
    if best:
        placement.move(best[1], best[2])
    return best is not None


def _try_swap(placement: PlacementState, slowest: int) -> bool:
    """Swap a shard of the slowest rank for a cheaper one of another rank. Return whether any swap helps."""
    seconds = placement.ranks[slowest].seconds
    best: tuple[float, PlacedShard, PlacedShard] | None = None
    for shard, other in _list_swaps(placement, slowest):
        less = shard.seconds - other.seconds
        height = max(seconds - less, placement.ranks[other.rank].seconds + less)
        if height >= seconds * (1 - ROUNDING) or (best and height >= best[0]):
            continue
        if not placement.holds(slowest, other.table) and placement.can_swap(shard, other):
            best = (height, shard, other)
    if best:
        placement.swap(best[1], best[2])
    return best is not None


def _try_resplit(placement: PlacementState, enumerator: Enumerator, slowest: int) -> bool:
    """Give one table of the slowest rank another option. Return whether any saves MIN_GAIN of the step."""
    before = placement.seconds
    max_height = before - MIN_GAIN * before
    best: tuple[float, int, ShardingOption] | None = None
    for number in sorted({shard.table for shard in placement.ranks[slowest].shards}):
        old, ranks = placement.options[number], [shard.rank for shard in placement.get_shards(number)]
        if not old.is_automatic:
            continue
        placement.remove(number)
        for option in _enumerate_others(enumerator, old):
            try:
                placement.add(number, option)
            except NoRoomError:
                continue
            # Other ranks may be as slow as this one was: a gain shows on the ranks that the table leaves or joins,
            # while the step as a whole must only not get longer.
            touched = chain([slowest], (shard.rank for shard in placement.get_shards(number) if shard.seconds))
            height = max(placement.ranks[rank].seconds for rank in touched) + placement.common_seconds
            if height <= max_height and placement.seconds <= before * (1 + SLACK) and (not best or height < best[0]):
                best = (height, number, option)
            placement.remove(number)
        placement.restore_table(number, old, ranks)
    if best:
        placement.remove(best[1])
        placement.add(best[1], best[2])
    return best is not None


def _enumerate_others(enumerator: Enumerator, old: ShardingOption) -> Iterator[ShardingOption]:
    """Yield every option of the table of `old`; one with several shards keeps the reason why the table was split."""
    for option in enumerator.list_options(old.table, old.ranks):
        is_split = option.sharding_type not in ("table_wise", "data_parallel")
        yield replace(option, reason=old.reason) if is_split else option


def _try_unreplicate(placement: PlacementState, enumerator: Enumerator) -> bool:
    """Place one replicated table on a single rank with little to do. Return whether that shortens the step.

    This shortens the time that all ranks have in common; the slowest rank does not get the table.
    """
    replicated = (
        number for number, option in sorted(placement.options.items()) if option.is_automatic and option.is_replicated
    )
    for number in replicated:
        before, old = placement.seconds, placement.options[number]
        ranks = [shard.rank for shard in placement.get_shards(number)]
        placement.remove(number)
        try:
            placement.add(number, enumerator.make_table_wise(old.table, old.ranks))
        except NoRoomError:
            placement.restore_table(number, old, ranks)
            continue
        if placement.seconds < before * (1 - ROUNDING):
            return True
        placement.remove(number)
        placement.restore_table(number, old, ranks)
    return False
