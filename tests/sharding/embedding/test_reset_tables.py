"""Tables that are drawn anew: a function of the seed, the table and the draw, under any plan; and what follows."""

import math
from dataclasses import dataclass

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables
from sharding.embedding.initial_weights import fill_uniform
from sharding.embedding.make_transport import TransportName
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_uniform_plan
from tests.sharding.embedding.table_batches import (
    DIM,
    GLOBAL_SIZE,
    LEARNING_RATE,
    ROWS,
    TABLES,
    ReferenceTables,
    TableBatch,
    draw_three_batches,
)
from tests.sharding.embedding.table_steps import (
    SCALE,
    OptimizerName,
    ShardWeights,
    TableLayout,
    copy_weights,
    list_chunks,
)
from tests.sharding.embedding.transport_kinds import TRANSPORTS, use_transport

SEED = 5
"""That of `TableLayout`."""
STATES = [("sgd", 0.0), ("adagrad", 2.0), ("rowwise_adagrad", 0.0), ("adagrad", 0.0), ("rowwise_adagrad", 2.0)]


@dataclass
class ResetTables:
    """One rank's weights after a reset, and after one more batch."""

    drawn: ShardWeights
    after: ShardWeights


def update(tables: ShardedTables, batch: TableBatch, ranks: Ranks) -> None:
    """Make one update as a step does."""
    size = GLOBAL_SIZE // ranks.world_size
    pooled = tables.lookup(
        tables.start_input_dist(batch.share(ranks.rank, ranks.world_size)), batch.num_valid, LEARNING_RATE
    )
    for start, end in list_chunks(size):
        pooled.read_chunk(start, end)
        pooled.write_gradient(start, end, batch.gradient.split(size)[ranks.rank][start:end] * pooled.scale)
    all_reduce_votes(ranks, DEFAULT_VOTE)
    pooled.apply_update(LEARNING_RATE)


def reset_between_updates(ranks: Ranks, layout: TableLayout, batches: list[TableBatch], draw: int) -> ResetTables:
    with use_transport(layout.transport, ranks.world_size):
        tables = layout.make_tables(ranks)
        update(tables, batches[0], ranks)
        tables.reset(draw)
        drawn = copy_weights(tables)
        update(tables, batches[1], ranks)
        return ResetTables(drawn, copy_weights(tables))


def draw_whole(name: str, draw: int) -> torch.Tensor:
    whole = torch.empty(ROWS[name], DIM)
    fill_uniform(
        whole,
        table_name=name,
        seed=SEED,
        row_offset=0,
        column_offset=0,
        num_columns=DIM,
        bound=1 / math.sqrt(ROWS[name]),
        draw=draw,
    )
    return whole


@pytest.mark.parametrize(
    ("optimizer", "initial_state", "transport"),
    [
        pytest.param(*state, transport, marks=() if number % len(TRANSPORTS) == column else pytest.mark.slow)
        for number, state in enumerate(STATES)
        for column, transport in enumerate(TRANSPORTS)
    ],
)
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_weights_are_those_of_the_whole_table_and_the_next_update_is_the_first_one(
    rank_pools: RankPools, world_size: int, optimizer: OptimizerName, initial_state: float, transport: TransportName
):
    batches = draw_three_batches()
    for sharding_type in list_types(optimizer):
        plan = make_uniform_plan(TABLES, sharding_type, world_size)
        layout = TableLayout(plan, transport, optimizer, initial_state=initial_state)
        drawn = {name: draw_whole(name, 2) for name in ROWS}
        reference = ReferenceTables(drawn, optimizer, "sum", initial_state)
        origin = {name: table.clone() for name, table in reference.weights.items()}
        reference(batches[1], SCALE)
        for result in rank_pools.of(world_size).run(reset_between_updates, layout, batches, 2):
            for (name, row, column), found in result.drawn.items():
                cells = slice(row, row + found.shape[0]), slice(column, column + found.shape[1])
                assert torch.equal(found.double(), origin[name][cells])
                move = reference.weights[name] - origin[name]
                error = result.after[name, row, column].double() - reference.weights[name][cells]
                assert error.norm(dim=1).max() <= 1e-5 * move.norm(dim=1).max()


def test_draws_are_independent_of_each_other():
    first, second, third = (draw_whole("large", draw).flatten() for draw in range(3))
    for one, other in ((first, second), (second, third), (first, third)):
        # 8,000 pairs: the standard deviation of a correlation of nothing is 0.011.
        assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.05
    assert torch.equal(first, draw_whole("large", 0).flatten())
