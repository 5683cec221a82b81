"""Features that are sequences: each id has an embedding of its own, from the table of another feature."""

from typing import get_args

import pytest
import torch

from sharding.embedding.make_transport import TransportName
from sharding.embedding.sequence_transport import Reader, place_ids
from sharding.jagged import JaggedIds, SequenceShape
from sharding.planner import ShardingType
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_mixed_plan, make_uniform_plan
from tests.sharding.embedding.table_batches import DIM, EPS, GLOBAL_SIZE, LEARNING_RATE, ROWS, TABLES, TableBatch
from tests.sharding.embedding.table_steps import (
    SCALE,
    Pooling,
    ShardWeights,
    TableLayout,
    TablesResult,
    look_up_and_update,
)
from tests.sharding.embedding.transport_kinds import TRANSPORTS

SEQUENCES = (SequenceShape(0, 6), SequenceShape(3, 4), SequenceShape(0, 3))
"""Two sequences of the table `large`, whose lengths differ, and one of the table `middle`."""
NUM_COLUMNS = len(ROWS) + sum(shape.max_length for shape in SEQUENCES)
TARGETS = {shape.target for shape in SEQUENCES}


def draw_batch(seed: int, num_valid: int = GLOBAL_SIZE) -> TableBatch:
    """Draw single ids for targets, bags for other tables, and sequences of every length up to the largest.

    The first samples have full sequences and the last ones none, so that ranks have different numbers of ids. Samples
    from `num_valid` on have no ids at all.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [*ROWS.values(), *(list(ROWS.values())[shape.target] for shape in SEQUENCES)]
    longest = [1 if feature in TARGETS else 3 for feature in range(len(ROWS))]
    longest += [shape.max_length for shape in SEQUENCES]
    lengths = torch.stack([torch.randint(0, n + 1, (GLOBAL_SIZE,), generator=generator) for n in longest])
    lengths[sorted(TARGETS)] = 1
    lengths[len(ROWS) :, :5] = torch.tensor(longest[len(ROWS) :])[:, None]
    lengths[len(ROWS) :, -4:] = 0
    lengths[:, num_valid:] = 0
    ids = [torch.randint(0, r, (int(n),), generator=generator) for r, n in zip(rows, lengths.sum(dim=1), strict=True)]
    gradient = torch.randn(GLOBAL_SIZE, NUM_COLUMNS, DIM, generator=generator) / num_valid
    gradient[num_valid:] = 0.0
    return TableBatch(lengths.int(), ids, gradient, num_valid)


def find_uses(batch: TableBatch) -> list[tuple[int, int, int, int, int]]:
    """List every id of a batch as (table, row, sample, column of its embedding, ids pooled there)."""
    uses: list[tuple[int, int, int, int, int]] = []
    first_column = len(ROWS)
    for feature, lengths in enumerate(batch.lengths.tolist()):
        shape = SEQUENCES[feature - len(ROWS)] if feature >= len(ROWS) else None
        ids = iter(batch.ids[feature].tolist())
        for sample, length in enumerate(lengths):
            for number in range(length):
                if shape is None:
                    uses.append((feature, next(ids), sample, feature, length))
                else:
                    column = first_column + shape.max_length - length + number
                    uses.append((shape.target, next(ids), sample, column, 1))
        first_column += 0 if shape is None else shape.max_length
    return uses


def step_reference(
    weights: list[torch.Tensor], sums: list[torch.Tensor], batch: TableBatch, layout: TableLayout
) -> torch.Tensor:
    """Return the embeddings [B, columns, D] in float64, then update the tables by the formula of the optimizer."""
    embeddings = torch.zeros(GLOBAL_SIZE, NUM_COLUMNS, DIM, dtype=torch.float64)
    gradients = [torch.zeros_like(table) for table in weights]
    for table, row, sample, column, pooled in find_uses(batch):
        share = 1 / pooled if layout.pooling == "mean" else 1.0
        embeddings[sample, column] += share * weights[table][row]
        gradients[table][row] += share * batch.gradient[sample, column].double()
    for table, gradient, of_table in zip(weights, gradients, sums, strict=True):
        if layout.optimizer == "sgd":
            table.sub_(LEARNING_RATE * gradient)
            continue
        scaled = gradient * SCALE * batch.num_valid / GLOBAL_SIZE
        of_table.add_(scaled.square().mean(dim=1, keepdim=True))
        table.sub_(LEARNING_RATE * scaled / (of_table.sqrt() + EPS))
    return embeddings


def assemble(by_rank: list[ShardWeights]) -> list[torch.Tensor]:
    tables = {name: torch.full((rows, DIM), torch.nan, dtype=torch.float64) for name, rows in ROWS.items()}
    for shards in by_rank:
        for (name, row, column), weights in shards.items():
            tables[name][row : row + weights.shape[0], column : column + weights.shape[1]] = weights.double()
    return list(tables.values())


def assert_follow_reference(by_rank: list[TablesResult], layout: TableLayout, batches: list[TableBatch]) -> None:
    weights = assemble([result.before for result in by_rank])
    sums = [torch.zeros(len(table), 1, dtype=torch.float64) for table in weights]
    for number, batch in enumerate(batches):
        expected = step_reference(weights, sums, batch, layout)
        found = torch.cat([result.pooled[number] for result in by_rank])
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(found, torch.cat([result.evaluated[number] for result in by_rank]))
    for table, expected in zip(assemble([result.after for result in by_rank]), weights, strict=True):
        torch.testing.assert_close(table, expected, rtol=1e-5, atol=1e-5)


PLANS = list_types("rowwise_adagrad")
TELLING = {
    (plan, transport, "rowwise_adagrad" if (row + column) % 2 else "sgd", "mean" if row % 2 else "sum")
    for row, plan in enumerate(PLANS)
    for column, transport in enumerate(TRANSPORTS)
}
CASES = list_cases(TELLING, PLANS, TRANSPORTS, ("sgd", "rowwise_adagrad"), get_args(Pooling))


@pytest.mark.parametrize(("sharding_type", "transport", "optimizer", "pooling"), CASES)
@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_embeddings_of_each_position_and_updates_follow_the_float64_reference(
    rank_pools: RankPools,
    world_size: int,
    sharding_type: ShardingType,
    transport: TransportName,
    optimizer: str,
    pooling: Pooling,
) -> None:
    plan = make_uniform_plan(TABLES, sharding_type, world_size)
    layout = TableLayout(plan, transport, optimizer, pooling=pooling, sequences=SEQUENCES)  # pyright: ignore[reportArgumentType]
    batches = [draw_batch(1), draw_batch(2, GLOBAL_SIZE - 9), draw_batch(3)]
    by_rank = rank_pools.of(world_size).run(look_up_and_update, layout, batches)
    assert_follow_reference(by_rank, layout, batches)


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tables_of_sequences_may_be_sharded_and_replicated_in_one_plan(
    rank_pools: RankPools, world_size: int, transport: TransportName
) -> None:
    layout = TableLayout(make_mixed_plan(TABLES, world_size), transport, sequences=SEQUENCES)
    batches = [draw_batch(5), draw_batch(6)]
    by_rank = rank_pools.of(world_size).run(look_up_and_update, layout, batches)
    assert_follow_reference(by_rank, layout, batches)


def test_ids_of_a_sample_are_neighbours_and_the_last_one_has_the_last_position() -> None:
    ids = JaggedIds(torch.tensor([7, 8, 9, 1, 2, 3, 4]), torch.tensor([[1, 1, 1], [3, 0, 1]], dtype=torch.int32))
    places = place_ids(ids, [Reader(0, 0, 1), Reader(1, 2, 4)], num_columns=6)
    assert places.values.tolist() == [7, 1, 2, 3, 8, 9, 4]
    assert places.starts.tolist() == [0, 4, 5, 7]
    assert places.embeddings.tolist() == [0, 3, 4, 5, 6, 12, 17]


def test_a_rank_without_any_id_takes_part(rank_pools: RankPools) -> None:
    layout = TableLayout(make_uniform_plan(TABLES, "row_wise", 2), "network", sequences=SEQUENCES)
    batches = [draw_batch(7, GLOBAL_SIZE // 2), draw_batch(8)]
    by_rank = rank_pools.of(2).run(look_up_and_update, layout, batches)
    assert_follow_reference(by_rank, layout, batches)
