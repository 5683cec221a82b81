"""Sharded tables by themselves: what they pool, and what updates do to them, whatever the plan and the way there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest
import torch

from dlrm.checkpoint.progress import Progress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.state import TrainingState
from dlrm.checkpoint.write import write_checkpoint
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.jagged import JaggedIds
from sharding.planner import Plan, ShardingType
from tests.distributed.plans import mixed_plan, plan_of, types_for
from tests.distributed.rank_pool import RankPools
from tests.distributed.table_batches import (
    DIM,
    GLOBAL_SIZE,
    RATE,
    ROWS,
    TABLES,
    Bags,
    ReferenceTables,
    random_bags,
    three_batches,
)
from tests.distributed.training import Setting
from tests.distributed.ways import TRANSPORT_KINDS, TransportKind, kernels_of, transport_of

CHUNK_SIZE = 5
SCALE = 32.0
SLICE_BYTES = 7 * len(ROWS) * DIM * 4
"""7 samples of fp32: a share has several slices, and chunks of 5 do not end where they do."""


@dataclass(frozen=True)
class TablesSetting:
    """Tables are kept and reached."""

    plan: Plan
    way: TransportKind = "memory"
    optimizer: Literal["sgd", "rowwise_adagrad", "adagrad"] = "sgd"
    exchange_dtype: Literal["fp32", "fp16"] = "fp32"
    pooling: Literal["sum", "mean"] = "sum"

    def make(self, ranks: Ranks) -> ShardedTables:
        return ShardedTables(
            self.plan,
            TableOptimizer(self.optimizer, SCALE),
            ranks,
            exchange_dtype=self.exchange_dtype,
            seed=5,
            chunk_size=CHUNK_SIZE,
            pooling=self.pooling,
            transport=transport_of(self.way),
        )


@dataclass(frozen=True)
class TablesResult:
    """By one rank, of some batches."""

    before: dict[tuple[str, int, int], torch.Tensor]
    after: dict[tuple[str, int, int], torch.Tensor]
    """Weights by table, first row and first column."""
    pooled: list[torch.Tensor]
    """Of each batch, [b, F, D]."""
    evaluated: list[torch.Tensor]
    """The same of a lookup that is for no update, between those of training."""


def weights_of(tables: ShardedTables) -> dict[tuple[str, int, int], torch.Tensor]:
    return {
        (shard.spec.table.name, shard.spec.block.first_row, shard.spec.block.first_column): shard.weights.clone()
        for shard in tables.shards()
    }


def chunks_of(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + CHUNK_SIZE, size)) for start in range(0, size, CHUNK_SIZE)]


def look_up_and_update(ranks: Ranks, how: TablesSetting, batches: list[Bags]) -> TablesResult:
    """Chunk by chunk, the gradient of one before the next is taken; all agree before anything moves; as a step does."""
    size = GLOBAL_SIZE // ranks.world_size
    with kernels_of(how.way), mock.patch("sharding.planner.slice_size.SLICE_BYTES", SLICE_BYTES):
        tables = how.make(ranks)
        made = TablesResult(weights_of(tables), {}, [], [])
        # As in training, the ids of a batch travel while the one before it is updated.
        sent = [tables.start_input_dist(batches[0].share(ranks.rank, ranks.world_size))]
        for number, bags in enumerate(batches):
            if number + 1 < len(batches):
                sent.append(tables.start_input_dist(batches[number + 1].share(ranks.rank, ranks.world_size)))
            made.evaluated.append(evaluated(tables, bags, ranks))
            pooled = tables.lookup(sent[number], bags.num_valid, RATE)
            gradient = bags.gradient.split(size)[ranks.rank]
            chunks: list[torch.Tensor] = []
            for start, end in chunks_of(size):
                chunks.append(pooled.read_chunk(start, end).clone())
                assert pooled.write_gradient(start, end, gradient[start:end] * pooled.scale) == 0.0
            all_reduce_votes(ranks, DEFAULT_VOTE)
            pooled.apply_update(RATE)
            made.pooled.append(torch.cat(chunks))
        made.after.update(weights_of(tables))
        return made


@torch.no_grad()
def evaluated(tables: ShardedTables, bags: Bags, ranks: Ranks) -> torch.Tensor:
    pooled = tables.lookup(tables.start_input_dist(bags.share(ranks.rank, ranks.world_size)), bags.num_valid)
    size = GLOBAL_SIZE // ranks.world_size
    return torch.cat([pooled.read_chunk(start, end).clone() for start, end in chunks_of(size)])


def whole(by_rank: list[dict[tuple[str, int, int], torch.Tensor]]) -> dict[str, torch.Tensor]:
    tables = {name: torch.full((rows, DIM), torch.nan) for name, rows in ROWS.items()}
    for shards in by_rank:
        for (name, row, column), weights in shards.items():
            tables[name][row : row + weights.shape[0], column : column + weights.shape[1]] = weights
    return tables


def check_against_reference(by_rank: list[TablesResult], how: TablesSetting, batches: list[Bags]) -> None:
    before = whole([made.before for made in by_rank])
    reference = ReferenceTables(before, how.optimizer, how.pooling)
    tolerance = 1e-5 if how.exchange_dtype == "fp32" else 2e-3
    for number, bags in enumerate(batches):
        pooled = torch.cat([made.pooled[number] for made in by_rank])
        assert_moved_alike(pooled, reference(bags, SCALE), torch.zeros_like(pooled), tolerance)
        assert torch.equal(pooled, torch.cat([made.evaluated[number] for made in by_rank]))
    for name, table in whole([made.after for made in by_rank]).items():
        assert_moved_alike(table, reference.weights[name], before[name], tolerance)


def assert_moved_alike(found: torch.Tensor, expected: torch.Tensor, origin: torch.Tensor, tolerance: float) -> None:
    """Row by row, by the largest movement of any."""
    moved, should = found.double() - origin.double(), expected - origin.double()
    assert should.norm() > 0
    assert (moved - should).norm(dim=-1).max() <= tolerance * should.norm(dim=-1).max()


CASES = [
    (sharding_type, optimizer)
    for optimizer in ("sgd", "rowwise_adagrad", "adagrad")
    for sharding_type in types_for(optimizer)
]


@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("way", TRANSPORT_KINDS)
@pytest.mark.parametrize(("sharding_type", "optimizer"), CASES)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_three_updates_follow_the_float64_reference(
    rank_pools: RankPools,
    world_size: int,
    sharding_type: ShardingType,
    optimizer: Any,
    way: TransportKind,
    exchange_dtype: Any,
):
    how = TablesSetting(plan_of(TABLES, sharding_type, world_size), way, optimizer, exchange_dtype)
    batches = three_batches()
    assert any((bags.lengths == 0).any() for bags in batches)
    check_against_reference(rank_pools.of(world_size).run(look_up_and_update, how, batches), how, batches)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("way", TRANSPORT_KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_plan_of_all_types_at_once_pools_as_the_float64_reference(
    rank_pools: RankPools, world_size: int, way: TransportKind, pooling: Any
):
    how = TablesSetting(mixed_plan(TABLES, world_size), way, "adagrad", pooling=pooling)
    batches = three_batches()
    check_against_reference(rank_pools.of(world_size).run(look_up_and_update, how, batches), how, batches)


@pytest.mark.parametrize("world_size", [2, 4])
def test_memory_and_network_move_the_tables_alike_to_the_bit(rank_pools: RankPools, world_size: int):
    plan, batches = mixed_plan(TABLES, world_size), three_batches()
    by_way = [
        rank_pools.of(world_size).run(look_up_and_update, TablesSetting(plan, way, "adagrad"), batches)
        for way in ("memory", "network")
    ]
    for by_memory, by_network in zip(*by_way, strict=True):
        assert by_memory.after.keys() == by_network.after.keys()
        for place, weights in by_memory.after.items():
            assert torch.equal(weights, by_network.after[place]), place


@pytest.mark.parametrize("way", TRANSPORT_KINDS)
def test_the_mean_of_bags_of_one_id_is_that_id_to_the_bit(rank_pools: RankPools, way: TransportKind):
    bags, plan = [random_bags(least=1, most=1)], mixed_plan(TABLES, 2)
    # Of one feature bags are longer, so that there are means to take.
    longer = random_bags(least=2, most=2)
    bags[0].lengths[-1], bags[0].ids[-1] = longer.lengths[-1], longer.ids[-1]
    summed, averaged = (
        rank_pools.of(2).run(look_up_and_update, TablesSetting(plan, way, pooling=pooling), bags)
        for pooling in ("sum", "mean")
    )
    for once, again in zip(summed, averaged, strict=True):
        assert torch.equal(once.pooled[0][:, :-1], again.pooled[0][:, :-1])
        torch.testing.assert_close(once.pooled[0][:, -1], 2 * again.pooled[0][:, -1])
        for place, weights in once.after.items():
            assert torch.equal(weights, again.after[place]) == (place[0] != TABLES[-1].name)


def gradients_too_large(ranks: Ranks, how: TablesSetting) -> list[float]:
    """What a gradient of 1e6, of infinity and of NaN are said to be."""
    bags = random_bags(most=2)
    with kernels_of(how.way):
        tables = how.make(ranks)
        told: list[float] = []
        for bad in (1e6, torch.inf, torch.nan):
            size = GLOBAL_SIZE // ranks.world_size
            pooled = tables.lookup(
                tables.start_input_dist(bags.share(ranks.rank, ranks.world_size)), bags.num_valid, RATE
            )
            gradient = torch.zeros(CHUNK_SIZE, len(ROWS), DIM)
            gradient[3, 2, 1] = bad
            for start, end in chunks_of(size):
                pooled.read_chunk(start, end)
                of_chunk = pooled.write_gradient(start, end, gradient[: end - start])
                if start == 0:
                    told.append(of_chunk.item())
            pooled.discard()
        return told


@pytest.mark.parametrize("way", TRANSPORT_KINDS)
@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
def test_a_gradient_that_its_format_cannot_hold_is_told_as_not_finite(
    rank_pools: RankPools, way: TransportKind, exchange_dtype: Any
):
    how = TablesSetting(mixed_plan(TABLES, 2), way, exchange_dtype=exchange_dtype)
    for large, infinite, undefined in rank_pools.of(2).run(gradients_too_large, how):
        assert (large == 0.0) == (exchange_dtype == "fp32")
        assert infinite != 0.0
        assert undefined != 0.0


def no_tables(ranks: Ranks) -> ShardedTables:
    optimizer = TableOptimizer("rowwise_adagrad", SCALE)
    return ShardedTables(Plan(ranks.world_size, ()), optimizer, ranks, exchange_dtype="fp32", seed=0, chunk_size=4)


def step_without_tables(ranks: Ranks) -> tuple[torch.Size, torch.Tensor | None, list[Any]]:
    tables = no_tables(ranks)
    sent = tables.start_input_dist(JaggedIds(torch.empty(0, dtype=torch.int64), torch.empty((0, 4), dtype=torch.int32)))
    pooled = tables.lookup(sent, GLOBAL_SIZE, RATE)
    chunk = pooled.read_chunk(0, 4).requires_grad_()
    dense = torch.ones(4, 3)
    torch.cat([dense, chunk.flatten(1)], dim=1).sum().backward()
    assert chunk.grad is not None
    pooled.write_gradient(0, 4, chunk.grad * pooled.scale)
    pooled.apply_update(RATE)
    return chunk.shape, chunk.grad, tables.shards()


@pytest.mark.parametrize("world_size", [1, 2])
def test_without_tables_a_step_looks_nothing_up_and_updates_nothing(rank_pools: RankPools, world_size: int):
    for shape, gradient, shards in rank_pools.of(world_size).run(step_without_tables):
        assert shape == (4, 0, 0)
        assert gradient.shape == (4, 0, 0)
        assert shards == []


def state_without_tables(ranks: Ranks, weight: float) -> TrainingState:
    model: Any = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(model.weight, weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.grad = torch.full_like(model.weight, weight)
    optimizer.step()
    return TrainingState(model, no_tables(ranks), optimizer, None, ranks)


def save_without_tables(ranks: Ranks, path: Path) -> torch.Tensor:
    state, progress = state_without_tables(ranks, 3.0), Progress(num_steps=9, step=4)
    label = RunIdentity.of(Setting(64, 16).resolved(ranks.world_size), data_checksum=None)
    write_checkpoint(path, state.collect(progress), progress, label, ranks.background_group)
    return state.model.weight.detach()  # pyright: ignore[reportReturnType]


def restore_without_tables(ranks: Ranks, path: Path, num_ranks: int) -> tuple[int, torch.Tensor, float]:
    state = state_without_tables(ranks, 1.0)
    progress = state.restore(path, num_ranks)
    (kept,) = state.optimizer.state_dict()["state"].values()
    return progress.step, state.model.weight.detach(), kept["momentum_buffer"].mean().item()  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("num_after", [1, 2])
def test_a_checkpoint_without_tables_is_saved_and_restored(rank_pools: RankPools, tmp_path: Path, num_after: int):
    saved = rank_pools.of(2).run(save_without_tables, tmp_path / "step-00000004")[0]
    for step, weight, momentum in rank_pools.of(num_after).run(restore_without_tables, tmp_path / "step-00000004", 2):
        assert step == 4
        assert torch.equal(weight, saved)
        assert momentum == 3.0
