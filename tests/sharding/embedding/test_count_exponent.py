"""Learning rates of rows by their occurrences in the whole batch, under any plan."""

import pytest
import torch

from sharding.embedding.count_rule import CountRule
from sharding.embedding.make_transport import TransportName
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_uniform_plan
from tests.sharding.embedding.table_batches import (
    LEARNING_RATE,
    TABLES,
    ReferenceTables,
    TableBatch,
    draw_three_batches,
)
from tests.sharding.embedding.table_steps import SCALE, OptimizerName, TableLayout, TablesResult, look_up_and_update
from tests.sharding.embedding.test_sharded_tables import assemble_tables, assert_moved_alike


class CountedTables(ReferenceTables):
    """Whole tables in float64 whose rows each have a rate of their own."""

    exponent: float

    def __call__(self, batch: TableBatch, scale: float) -> torch.Tensor:
        self._counts = {
            name: torch.bincount(ids, minlength=len(self.weights[name])).double()
            for name, ids in zip(self.weights, batch.ids, strict=True)
        }
        return super().__call__(batch, scale)

    def _step(self, name: str, gradient: torch.Tensor, scale: float) -> None:
        before = self.weights[name].clone()
        super()._step(name, gradient, scale)
        factors = self._counts[name].clamp_min(1) ** self.exponent
        self.weights[name] = before + (self.weights[name] - before) * factors.unsqueeze(1)


@pytest.mark.parametrize(
    ("optimizer", "exponent"),
    [pytest.param("sgd", -0.5, marks=pytest.mark.slow), ("rowwise_adagrad", 0.5), ("adagrad", 1.0)],
)
@pytest.mark.parametrize(("world_size", "transport"), list_cases([(4, "network")], (1, 2, 4), ("memory", "network")))
def test_three_updates_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, optimizer: OptimizerName, exponent: float, transport: TransportName
):
    batches = draw_three_batches()
    for sharding_type in list_types(optimizer):
        plan = make_uniform_plan(TABLES, sharding_type, world_size)
        layout = TableLayout(plan, transport, optimizer, count_rule=CountRule(count_exponent=exponent))
        by_rank: list[TablesResult] = rank_pools.of(world_size).run(look_up_and_update, layout, batches)
        before = assemble_tables([result.before for result in by_rank])
        reference = CountedTables(before, optimizer, "sum")
        reference.exponent = exponent
        for batch in batches:
            reference(batch, SCALE)
        for name, table in assemble_tables([result.after for result in by_rank]).items():
            assert_moved_alike(table, reference.weights[name], before[name], 1e-5)


def test_sgd_at_the_rate_of_one_over_the_count_steps_by_the_mean_over_occurrences(rank_pools: RankPools):
    (batch, *_) = draw_three_batches()
    layout = TableLayout(
        make_uniform_plan(TABLES, "row_wise", 2), "memory", "sgd", count_rule=CountRule(count_exponent=-1.0)
    )
    by_rank: list[TablesResult] = rank_pools.of(2).run(look_up_and_update, layout, [batch])
    before, after = (assemble_tables([getattr(r, when) for r in by_rank]) for when in ("before", "after"))
    for feature, name in enumerate(before):
        bags = torch.repeat_interleave(torch.arange(len(batch.gradient)), batch.lengths[feature])
        for row in batch.ids[feature].unique():
            mean = batch.gradient[bags[batch.ids[feature] == row], feature].double().mean(dim=0)
            torch.testing.assert_close(
                after[name][row].double(), before[name][row] - LEARNING_RATE * mean, rtol=0, atol=1e-6
            )
