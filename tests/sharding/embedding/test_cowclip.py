"""Clipping of the gradients of rows by their occurrences in the whole batch, under any plan of whole rows."""

import pytest
import torch

from sharding.embedding.count_rule import CountRule
from sharding.embedding.make_transport import TransportName
from sharding.planner import ShardingType
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_uniform_plan
from tests.sharding.embedding.table_batches import TABLES, ReferenceTables, TableBatch, draw_three_batches
from tests.sharding.embedding.table_steps import SCALE, TableLayout, TablesResult, look_up_and_update
from tests.sharding.embedding.test_sharded_tables import assemble_tables, assert_moved_alike

COWCLIP = CountRule(clip_ratio=0.1, clip_floor=0.1)
"""An occurrence has a gradient of about 0.17, and rows of tables have weights of 0.1 to 2.3."""
TELLING = [(2, "memory", "sum"), (2, "network", "mean"), (4, "network", "sum")]


class ClippedTables(ReferenceTables):
    """Whole tables in float64 whose gradients are clipped as the paper's algorithm says."""

    def __call__(self, batch: TableBatch, scale: float) -> torch.Tensor:
        self._ids = dict(zip(self.weights, batch.ids, strict=True))
        self.num_clipped = self.num_whole = 0
        return super().__call__(batch, scale)

    def _step(self, name: str, gradient: torch.Tensor, scale: float) -> None:
        clipped = gradient.clone()
        for row, count in zip(*self._ids[name].unique(return_counts=True), strict=True):
            limit = count * max(COWCLIP.clip_ratio * self.weights[name][row].norm(), COWCLIP.clip_floor)
            norm = gradient[row].norm()
            if norm > limit:
                clipped[row] = gradient[row] * limit / norm
            self.num_clipped += bool(norm > limit)
            self.num_whole += bool(norm <= limit)
        super()._step(name, clipped, scale)


@pytest.mark.parametrize("sharding_type", list_types("rowwise_adagrad"))
@pytest.mark.parametrize(
    ("world_size", "transport", "pooling"),
    list_cases(TELLING, (1, 2, 4), ("memory", "network"), ("sum", "mean")),
)
def test_three_updates_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, sharding_type: ShardingType, transport: TransportName, pooling: str
):
    plan = make_uniform_plan(TABLES, sharding_type, world_size)
    layout = TableLayout(plan, transport, "rowwise_adagrad", pooling=pooling, count_rule=COWCLIP)  # pyright: ignore[reportArgumentType]
    batches = draw_three_batches()
    by_rank: list[TablesResult] = rank_pools.of(world_size).run(look_up_and_update, layout, batches)
    before = assemble_tables([result.before for result in by_rank])
    reference = ClippedTables(before, layout.optimizer, pooling)
    for batch in batches:
        reference(batch, SCALE)
        assert reference.num_clipped > 10
        assert reference.num_whole > 10
    for name, table in assemble_tables([result.after for result in by_rank]).items():
        assert_moved_alike(table, reference.weights[name], before[name], 1e-5)


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_memory_and_network_move_the_tables_alike_to_the_bit(rank_pools: RankPools, world_size: int):
    plan, batches = make_uniform_plan(TABLES, "row_wise", world_size), draw_three_batches()
    over_memory, over_network = (
        rank_pools.of(world_size).run(
            look_up_and_update, TableLayout(plan, kind, "rowwise_adagrad", count_rule=COWCLIP), batches
        )
        for kind in ("memory", "network")
    )
    for by_memory, by_network in zip(over_memory, over_network, strict=True):
        for shard, weights in by_memory.after.items():
            assert torch.equal(weights, by_network.after[shard]), shard


def test_limits_that_no_gradient_reaches_change_nothing_to_the_bit(rank_pools: RankPools):
    plan, batches = make_uniform_plan(TABLES, "row_wise", 2), draw_three_batches()
    clipped, plain = (
        rank_pools.of(2).run(
            look_up_and_update, TableLayout(plan, "memory", "rowwise_adagrad", count_rule=rule), batches
        )
        for rule in (CountRule(clip_floor=1e6), CountRule())
    )
    for one, other in zip(clipped, plain, strict=True):
        for shard, weights in one.after.items():
            assert torch.equal(weights, other.after[shard]), shard


def test_the_smallest_floor_clips_too(rank_pools: RankPools):
    """Less than fp32 has: a limit of 0 where the weights are 0."""
    plan, batches = make_uniform_plan(TABLES, "row_wise", 2), draw_three_batches()
    smallest, small = (
        rank_pools.of(2).run(
            look_up_and_update,
            TableLayout(plan, "memory", "rowwise_adagrad", count_rule=CountRule(clip_ratio=0.1, clip_floor=floor)),
            batches,
        )
        for floor in (1e-50, 1e-20)
    )
    for one, other in zip(smallest, small, strict=True):
        for shard, weights in one.after.items():
            torch.testing.assert_close(weights, other.after[shard])
