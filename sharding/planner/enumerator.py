"""The ways to part a table that an automatic plan chooses from: whole, a copy on every rank, by rows, by columns.

Never a grid, and never one node on purpose: which ranks parts are on is for the placement to find.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sharding.planner import blocks as parts_of
from sharding.planner.blocks import COLUMN_STEP, by_columns, by_rows, replicated
from sharding.planner.cost_estimator import CostEstimator
from sharding.planner.partitioner import ShardingOption
from sharding.planner.request import PlanRequest
from sharding.planner.types import Table

FOR_ROOM = "to find room beside other tables"
"""Why a table is in parts that was to be whole."""


class Enumerator:
    """Of one request."""

    def __init__(self, request: PlanRequest, costs: CostEstimator) -> None:
        self._request = request
        self._costs = costs
        self._world_size = request.topology.world_size

    def initial_option(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        """What the search begins with: whole, or a copy on every rank where that is cheaper on average."""
        owned = self._costs.block(table, table.num_rows, table.embedding_dim).seconds / self._world_size
        owned += self._costs.everywhere(table, 1).seconds
        is_cheaper = self._costs.replicated(table).seconds < owned
        return (
            self._replicate(table, ranks)
            if is_cheaper and self.may_replicate(table, ranks)
            else self.table_wise(table, ranks)
        )

    def all_options(self, table: Table, ranks: Sequence[int]) -> Iterator[ShardingOption]:
        """Every way, the plainest first."""
        yield self.table_wise(table, ranks)
        if self.may_replicate(table, ranks):
            yield self._replicate(table, ranks)
        for num_parts in _shard_counts(len(ranks)):
            yield from self._split(table, ranks, num_parts)

    def finer_option(self, split: ShardingOption) -> ShardingOption | None:
        """For a table that finds no room: the same in more and smaller parts; None where there is no such way."""
        if split.type == "data_parallel":
            return self.table_wise(split.table, split.ranks)
        for num_parts in _shard_counts(len(split.ranks)):
            if num_parts > len(split.blocks):
                for finer in self._split(split.table, split.ranks, num_parts):
                    if len(finer.blocks) > len(split.blocks):
                        return replace(finer, reason=FOR_ROOM)
        return None

    def table_wise(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        return ShardingOption(table, "table_wise", parts_of.whole(table, 0), ranks)

    def may_replicate(self, table: Table, ranks: Sequence[int]) -> bool:
        """Only where it saves an exchange, and costs every rank less than the whole table costs one."""
        if not self._request.is_exchanged or len(ranks) < self._world_size:
            return False
        owned = self._costs.block(table, table.num_rows, table.embedding_dim)
        return self._costs.replicated(table).seconds < owned.seconds

    def _replicate(self, table: Table, ranks: Sequence[int]) -> ShardingOption:
        parts = replicated(table, self._world_size)
        return ShardingOption(table, "data_parallel", parts, ranks, is_fixed=True)

    def _split(self, table: Table, ranks: Sequence[int], num_parts: int) -> Iterator[ShardingOption]:
        if self._request.optimizer != "rowwise_adagrad" and table.embedding_dim >= num_parts * COLUMN_STEP:
            yield ShardingOption(table, "column_wise", by_columns(table, range(num_parts)), ranks)
        parts = by_rows(table, range(num_parts))
        if len(parts) == num_parts:
            yield ShardingOption(table, "row_wise", parts, ranks)


def _shard_counts(most: int) -> list[int]:
    """2, 3, 4, 6, 8, 12 and so on, and `most` itself."""
    counts = {most}
    power = 2
    while power < most:
        counts |= {power, min(power + power // 2, most)}
        power *= 2
    return sorted(count for count in counts if count > 1)
