"""Sharded tables without a model: pooled embeddings and updates, whatever the plan and the transport."""

from itertools import product
from typing import Any

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.embedding import Shard, ShardedTables, TableOptimizer
from sharding.embedding.make_transport import TransportName
from sharding.jagged import JaggedIds
from sharding.planner import ExchangeType, Plan, ShardingType
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import TYPES, list_types, make_mixed_plan, make_uniform_plan
from tests.sharding.embedding.table_batches import (
    DIM,
    GLOBAL_SIZE,
    LEARNING_RATE,
    ROWS,
    TABLES,
    ReferenceTables,
    TableBatch,
    draw_batch,
    draw_three_batches,
)
from tests.sharding.embedding.table_steps import (
    CHUNK_SIZE,
    SCALE,
    OptimizerName,
    Pooling,
    ShardWeights,
    TableLayout,
    TablesResult,
    list_chunks,
    look_up_and_update,
)
from tests.sharding.embedding.transport_kinds import TRANSPORTS, use_transport

OPTIMIZERS: tuple[OptimizerName, ...] = ("sgd", "rowwise_adagrad", "adagrad")
ADAGRADS: tuple[OptimizerName, ...] = ("rowwise_adagrad", "adagrad")
INITIAL_STATE = 2.0
"""About the square of S times the gradient of one occurrence, which is 1.8 on average."""


def list_plan_cases() -> list[Any]:
    """List plans, transports, optimizers and formats of numbers; all but the telling ones are slow.

    The telling ones have every two of a plan, a transport and an optimizer together in fp32, and each of them in fp16.
    """
    cases: list[Any] = []
    for (row, kind), (column, transport) in product(enumerate(TYPES), enumerate(TRANSPORTS)):
        optimizers = [optimizer for optimizer in OPTIMIZERS if kind in list_types(optimizer)]
        for number, optimizer in enumerate(optimizers):
            is_chosen = (row + column) % len(optimizers) == number
            for dtype, is_telling in (("fp32", is_chosen), ("fp16", is_chosen and row % 3 == column)):
                marks = () if is_telling else pytest.mark.slow
                cases.append(pytest.param(kind, transport, optimizer, dtype, marks=marks))
    return cases


TOLERANCES: dict[ExchangeType, float] = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2}
"""Largest errors of sums of numbers that were rounded to a format."""


def assemble_tables(by_rank: list[ShardWeights]) -> dict[str, torch.Tensor]:
    """Put tables together from the shards of all ranks; cells that no rank has are NaN."""
    tables = {name: torch.full((rows, DIM), torch.nan) for name, rows in ROWS.items()}
    for shards in by_rank:
        for (name, row, column), weights in shards.items():
            tables[name][row : row + weights.shape[0], column : column + weights.shape[1]] = weights
    return tables


def assert_follow_reference(by_rank: list[TablesResult], layout: TableLayout, batches: list[TableBatch]) -> None:
    before = assemble_tables([result.before for result in by_rank])
    reference = ReferenceTables(before, layout.optimizer, layout.pooling, layout.initial_state)
    tolerance = TOLERANCES[layout.exchange_dtype]
    for number, batch in enumerate(batches):
        pooled = torch.cat([result.pooled[number] for result in by_rank])
        assert_moved_alike(pooled, reference(batch, SCALE), torch.zeros_like(pooled), tolerance)
        assert torch.equal(pooled, torch.cat([result.evaluated[number] for result in by_rank]))
    for name, table in assemble_tables([result.after for result in by_rank]).items():
        assert_moved_alike(table, reference.weights[name], before[name], tolerance)


def assert_moved_alike(found: torch.Tensor, expected: torch.Tensor, origin: torch.Tensor, tolerance: float) -> None:
    """Assert that every row moved as expected, within `tolerance` of the largest movement of any row."""
    moved, expected_move = found.double() - origin.double(), expected - origin.double()
    assert expected_move.norm() > 0
    assert (moved - expected_move).norm(dim=-1).max() <= tolerance * expected_move.norm(dim=-1).max()


@pytest.mark.parametrize(("sharding_type", "transport", "optimizer", "exchange_dtype"), list_plan_cases())
@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_three_updates_follow_the_float64_reference(
    rank_pools: RankPools,
    world_size: int,
    sharding_type: ShardingType,
    transport: TransportName,
    optimizer: OptimizerName,
    exchange_dtype: ExchangeType,
):
    plan = make_uniform_plan(TABLES, sharding_type, world_size)
    layout = TableLayout(plan, transport, optimizer, exchange_dtype)
    batches = draw_three_batches()
    assert any((batch.lengths == 0).any() for batch in batches)
    assert_follow_reference(rank_pools.of(world_size).run(look_up_and_update, layout, batches), layout, batches)


@pytest.mark.parametrize(
    ("optimizer", "transport"),
    list_cases([("rowwise_adagrad", "memory"), ("adagrad", "network"), ("adagrad", "torchrec")], ADAGRADS, TRANSPORTS),
)
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_updates_whose_sums_of_squares_begin_above_zero_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, optimizer: OptimizerName, transport: TransportName
):
    """Under every sharding type: replicated tables are among them."""
    batches = draw_three_batches()
    for sharding_type in list_types(optimizer):
        plan = make_uniform_plan(TABLES, sharding_type, world_size)
        layout = TableLayout(plan, transport, optimizer, initial_state=INITIAL_STATE)
        assert_follow_reference(rank_pools.of(world_size).run(look_up_and_update, layout, batches), layout, batches)


@pytest.mark.parametrize("optimizer", ADAGRADS)
def test_at_another_scale_sums_that_begin_at_the_same_gradient_move_tables_alike(
    rank_pools: RankPools, optimizer: OptimizerName
):
    """Beginning with a (S / B)^2, they differ by eps alone, whether S is the power of two above the batch or below."""
    batches, initial = draw_three_batches(), 1.5
    plan = make_uniform_plan(TABLES, "row_wise", 2)
    at_scales: list[list[TablesResult]] = [
        rank_pools.of(2).run(
            look_up_and_update,
            TableLayout(
                plan, "memory", optimizer, initial_state=initial * (scale / GLOBAL_SIZE) ** 2, scale=float(scale)
            ),
            batches,
        )
        for scale in (16, 32)
    ]
    for small, large in zip(*at_scales, strict=True):
        for shard, weights in small.after.items():
            torch.testing.assert_close(weights, large.after[shard], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("transport", ["memory", "network"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_updates_from_a_bf16_exchange_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, transport: TransportName
):
    layout = TableLayout(make_mixed_plan(TABLES, world_size), transport, "adagrad", "bf16")
    batches = draw_three_batches()
    assert_follow_reference(rank_pools.of(world_size).run(look_up_and_update, layout, batches), layout, batches)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "world_size", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4]
)
def test_a_plan_of_all_types_at_once_pools_as_the_float64_reference(
    rank_pools: RankPools, world_size: int, transport: TransportName, pooling: Pooling
):
    layout = TableLayout(make_mixed_plan(TABLES, world_size), transport, "adagrad", pooling=pooling)
    batches = draw_three_batches()
    assert_follow_reference(rank_pools.of(world_size).run(look_up_and_update, layout, batches), layout, batches)


@pytest.mark.parametrize("initial_state", [0.0, INITIAL_STATE])
@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_memory_and_network_move_the_tables_alike_to_the_bit(
    rank_pools: RankPools, world_size: int, initial_state: float
):
    plan, batches = make_mixed_plan(TABLES, world_size), draw_three_batches()
    over_memory, over_network = (
        rank_pools.of(world_size).run(
            look_up_and_update, TableLayout(plan, kind, "adagrad", initial_state=initial_state), batches
        )
        for kind in ("memory", "network")
    )
    for by_memory, by_network in zip(over_memory, over_network, strict=True):
        assert by_memory.after.keys() == by_network.after.keys()
        for shard, weights in by_memory.after.items():
            assert torch.equal(weights, by_network.after[shard]), shard


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_mean_of_bags_of_one_id_is_that_id_to_the_bit(rank_pools: RankPools, transport: TransportName):
    batch, plan = draw_batch(min_length=1, max_length=1), make_mixed_plan(TABLES, 2)
    # The last feature has longer bags, so that there are means to take.
    longer = draw_batch(min_length=2, max_length=2)
    batch.lengths[-1], batch.ids[-1] = longer.lengths[-1], longer.ids[-1]
    by_sums, by_means = (
        rank_pools.of(2).run(look_up_and_update, TableLayout(plan, transport, pooling=pooling), [batch])
        for pooling in ("sum", "mean")
    )
    for sums, means in zip(by_sums, by_means, strict=True):
        assert torch.equal(sums.pooled[0][:, :-1], means.pooled[0][:, :-1])
        torch.testing.assert_close(sums.pooled[0][:, -1], 2 * means.pooled[0][:, -1])
        for shard, weights in sums.after.items():
            assert torch.equal(weights, means.after[shard]) == (shard[0] != TABLES[-1].name)


def write_bad_gradients(ranks: Ranks, layout: TableLayout) -> list[float]:
    """Return what `write_gradient` answers to a gradient of 1e6, of infinity and of NaN."""
    batch = draw_batch(max_length=2)
    size = GLOBAL_SIZE // ranks.world_size
    with use_transport(layout.transport, ranks.world_size):
        tables = layout.make_tables(ranks)
        answers: list[float] = []
        for bad in (1e6, torch.inf, torch.nan):
            handle = tables.start_input_dist(batch.share(ranks.rank, ranks.world_size))
            pooled = tables.lookup(handle, batch.num_valid, LEARNING_RATE)
            gradient = torch.zeros(CHUNK_SIZE, len(ROWS), DIM)
            gradient[3, 2, 1] = bad
            for start, end in list_chunks(size):
                pooled.read_chunk(start, end)
                answer = pooled.write_gradient(start, end, gradient[: end - start])
                if start == 0:
                    answers.append(answer.item())
            pooled.discard()
        return answers


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
def test_a_gradient_that_its_format_cannot_hold_is_reported_as_not_finite(
    rank_pools: RankPools, transport: TransportName, exchange_dtype: ExchangeType
):
    layout = TableLayout(make_mixed_plan(TABLES, 2), transport, exchange_dtype=exchange_dtype)
    for large, infinite, undefined in rank_pools.of(2).run(write_bad_gradients, layout):
        assert (large == 0.0) == (exchange_dtype == "fp32")
        assert infinite != 0.0
        assert undefined != 0.0


def step_without_tables(ranks: Ranks) -> tuple[torch.Size, torch.Tensor, list[Shard]]:
    optimizer = TableOptimizer("rowwise_adagrad", SCALE, GLOBAL_SIZE)
    plan = Plan(ranks.world_size, ())
    tables = ShardedTables(plan, optimizer, ranks, exchange_dtype="fp32", seed=0, chunk_size=4)
    no_ids = JaggedIds(torch.empty(0, dtype=torch.int64), torch.empty((0, 4), dtype=torch.int32))
    pooled = tables.lookup(tables.start_input_dist(no_ids), GLOBAL_SIZE, LEARNING_RATE)
    chunk = pooled.read_chunk(0, 4).requires_grad_()
    dense = torch.ones(4, 3)
    torch.cat([dense, chunk.flatten(1)], dim=1).sum().backward()
    assert chunk.grad is not None
    pooled.write_gradient(0, 4, chunk.grad * pooled.scale)
    pooled.apply_update(LEARNING_RATE)
    return chunk.shape, chunk.grad, tables.list_shards()


@pytest.mark.parametrize("world_size", [1, 2])
def test_without_tables_a_step_looks_nothing_up_and_updates_nothing(rank_pools: RankPools, world_size: int):
    for shape, gradient, shards in rank_pools.of(world_size).run(step_without_tables):
        assert shape == (4, 0, 0)
        assert gradient.shape == (4, 0, 0)
        assert shards == []
