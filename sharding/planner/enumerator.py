"""Sharding options: the blocks of a table under each sharding type, and the options of an automatic plan.

An automatic plan chooses among whole, a copy on every rank, by rows, and by columns. It never enumerates a grid or a
single node: the partitioner finds which ranks hold the shards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.types import Block, PlanRequest, ShardingOption, Table

COLUMN_STEP = 4
"""Columns are split at multiples of this where the table's width is one: FBGEMM's kernels require it."""
SPLIT_FOR_MEMORY = "to fit into memory with the other tables"
"""Reason of an option with more shards than the search would have chosen for speed."""


def keep_whole(table: Table, rank: int) -> tuple[Block, ...]:
    """Return the block of table_wise: the whole table on `rank`."""
    return (Block(rank, 0, table.num_rows, 0, table.embedding_dim),)


def replicate(table: Table, world_size: int) -> tuple[Block, ...]:
    """Return the blocks of data_parallel: the whole table on every rank."""
    return tuple(block for rank in range(world_size) for block in keep_whole(table, rank))


def split_by_rows(table: Table, ranks: Sequence[int]) -> tuple[Block, ...]:
    """Return the blocks of row_wise (all ranks) or table_row_wise (ranks of one node): one range of rows each.

    Ranges are equally long, but the last may be shorter. The last ranks get none if the table has too few rows.
    """
    return _make_row_blocks(table, ranks, 0, table.embedding_dim)


def split_by_columns(table: Table, ranks: Sequence[int]) -> tuple[Block, ...]:
    """Return the blocks of column_wise (all ranks) or table_column_wise (ranks of one node): one range of columns each.

    Lengths of ranges differ by COLUMN_STEP at most. Some ranks get none if the table has too few columns.
    """
    return tuple(
        Block(rank, 0, table.num_rows, start, end - start)
        for rank, (start, end) in zip(ranks, _cut_columns(table, len(ranks)), strict=True)
        if end > start
    )


def split_by_grid(table: Table, nodes: Sequence[Sequence[int]]) -> tuple[Block, ...]:
    """Return the blocks of grid: a range of columns for each node, split by rows over the ranks of the node."""
    return tuple(
        block
        for ranks, (start, end) in zip(nodes, _cut_columns(table, len(nodes)), strict=True)
        if end > start
        for block in _make_row_blocks(table, ranks, start, end - start)
    )


class Enumerator:
    """The enumerator of automatic options, for the tables of one request."""

    def __init__(self, request: PlanRequest, costs: CostEstimator) -> None:
        self._request = request
        self._costs = costs
        self._world_size = request.topology.world_size

    def make_initial_option(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        """Return the option that the search begins with: whole, or a copy on every rank if cheaper."""
        # In a balanced plan every rank owns about 1 / W of the tables: each bears 1 / W of the work of all owners.
        owned = self._costs.estimate_shard(table, table.num_rows, table.embedding_dim).seconds / self._world_size
        owned += self._costs.estimate_split_table(table, 1).seconds
        is_cheaper = self._costs.estimate_copy(table).seconds < owned
        return (
            self._make_replicated(table, ranks)
            if is_cheaper and self.may_replicate(table, ranks)
            else self.make_table_wise(table, ranks)
        )

    def list_options(self, table: Table, ranks: Sequence[int]) -> Iterator[ShardingOption]:
        """Yield every option of a table, the one with the fewest shards first."""
        yield self.make_table_wise(table, ranks)
        if self.may_replicate(table, ranks):
            yield self._make_replicated(table, ranks)
        for num_shards in _list_shard_counts(len(ranks)):
            yield from self._make_split(table, ranks, num_shards)

    def make_finer_option(self, option: ShardingOption) -> ShardingOption | None:
        """Return the next option with more and smaller shards, for a table that does not fit; None after the finest.

        A copy on every rank becomes a whole table on one rank.
        """
        if option.is_replicated:
            return self.make_table_wise(option.table, option.ranks)
        for num_shards in _list_shard_counts(len(option.ranks)):
            if num_shards > len(option.blocks):
                for finer in self._make_split(option.table, option.ranks, num_shards):
                    if len(finer.blocks) > len(option.blocks):
                        return replace(finer, reason=SPLIT_FOR_MEMORY)
        return None

    def make_finest_option(self, option: ShardingOption) -> ShardingOption:
        """Return the option with the smallest shards that a table may have."""
        while (finer := self.make_finer_option(option)) is not None:
            option = finer
        return option

    def make_table_wise(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        """Return the option of the whole table on one of `ranks`."""
        return ShardingOption(table, "table_wise", keep_whole(table, 0), ranks, is_automatic=True)

    def may_replicate(self, table: Table, ranks: Sequence[int]) -> bool:
        """Whether a copy on every rank saves an exchange and costs each rank less than the table costs one owner."""
        if not self._request.is_exchanged or len(ranks) < self._world_size or table.is_cached or table.dtype == "int8":
            return False
        owned = self._costs.estimate_shard(table, table.num_rows, table.embedding_dim)
        return self._costs.estimate_copy(table).seconds < owned.seconds

    def _make_replicated(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        blocks = replicate(table, self._world_size)
        return ShardingOption(table, "data_parallel", blocks, ranks, is_automatic=True, has_fixed_ranks=True)

    def _make_split(self, table: Table, ranks: Sequence[int], num_shards: int) -> Iterator[ShardingOption]:
        has_whole_rows = self._request.optimizer == "rowwise_adagrad" or table.dtype == "int8"
        may_split_rows = not has_whole_rows and not table.is_cached
        if may_split_rows and table.embedding_dim >= num_shards * COLUMN_STEP:
            blocks = split_by_columns(table, range(num_shards))
            yield ShardingOption(table, "column_wise", blocks, ranks, is_automatic=True)
        blocks = split_by_rows(table, range(num_shards))
        if len(blocks) == num_shards:
            yield ShardingOption(table, "row_wise", blocks, ranks, is_automatic=True)


def _make_row_blocks(table: Table, ranks: Sequence[int], first_column: int, num_columns: int) -> tuple[Block, ...]:
    size = -(-table.num_rows // len(ranks))
    return tuple(
        Block(rank, start, min(size, table.num_rows - start), first_column, num_columns)
        for rank, start in zip(ranks, range(0, table.num_rows, size), strict=False)
    )


def _cut_columns(table: Table, num_ranges: int) -> list[tuple[int, int]]:
    """Return `num_ranges` ranges [start, end) of columns; some are empty if the table has too few columns."""
    step = 1 if table.embedding_dim % COLUMN_STEP else COLUMN_STEP
    num_steps = table.embedding_dim // step
    return [
        (number * num_steps // num_ranges * step, (number + 1) * num_steps // num_ranges * step)
        for number in range(num_ranges)
    ]


def _list_shard_counts(max_count: int) -> list[int]:
    """Return the numbers of shards to try: 2, 3, 4, 6, 8, 12 and so on below `max_count`, and `max_count` itself."""
    counts = {max_count}
    power = 2
    while power < max_count:
        counts |= {power, min(power + power // 2, max_count)}
        power *= 2
    return sorted(count for count in counts if count > 1)
