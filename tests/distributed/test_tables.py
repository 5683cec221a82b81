"""Sharded tables by themselves: what they pool, and what updates do to them, whatever the plan and the way there."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest
import torch

from dlrm.checkpoint.label import Label
from dlrm.checkpoint.state import TrainingState
from dlrm.checkpoint.write import write_checkpoint
from dlrm.progress import Progress
from sharding.agree import NO_WISHES, agree
from sharding.plan import Plan, ShardingType
from sharding.ranks import Ranks
from sharding.tables import ShardedTables, TableOptimizer, native
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

CHUNK_SIZE = 5
SCALE = 32.0
SLICE_BYTES = 7 * len(ROWS) * DIM * 4
"""7 samples of fp32: a share has several slices, and chunks of 5 do not end where they do."""
Way = Literal["memory", "network", "network by FBGEMM"]
WAYS: list[Way] = ["memory", "network", "network by FBGEMM"]


@dataclass(frozen=True)
class How:
    """Tables are kept and reached."""

    plan: Plan
    way: Way = "memory"
    optimizer: Literal["sgd", "rowwise_adagrad", "adagrad"] = "sgd"
    exchange_dtype: Literal["fp32", "fp16"] = "fp32"
    pooling: Literal["sum", "mean"] = "sum"

    def make(self, ranks: Ranks) -> ShardedTables:
        with self.kernels():
            return ShardedTables(
                self.plan,
                TableOptimizer(self.optimizer, SCALE),
                ranks,
                exchange_dtype=self.exchange_dtype,
                seed=5,
                chunk_size=CHUNK_SIZE,
                pooling=self.pooling,
                transport="memory" if self.way == "memory" else "network",
            )

    def kernels(self) -> AbstractContextManager[Any]:
        if self.way == "network by FBGEMM":
            return mock.patch.object(native, "is_built", return_value=False)
        return nullcontext()


@dataclass(frozen=True)
class Made:
    """By one rank, of some batches."""

    before: dict[tuple[str, int, int], torch.Tensor]
    after: dict[tuple[str, int, int], torch.Tensor]
    """Weights by table, first row and first column."""
    pooled: list[torch.Tensor]
    """Of each batch, [b, F, D]."""


def weights_of(tables: ShardedTables) -> dict[tuple[str, int, int], torch.Tensor]:
    return {
        (shard.place.table.name, shard.place.block.first_row, shard.place.block.first_column): shard.weights.clone()
        for shard in tables.shards()
    }


def look_up_and_update(ranks: Ranks, how: How, batches: list[Bags]) -> Made:
    """Chunk by chunk, the gradient of one before the next is taken; all agree before anything moves; as a step does."""
    size = GLOBAL_SIZE // ranks.world_size
    with how.kernels(), mock.patch("sharding.tables.slices.SLICE_BYTES", SLICE_BYTES):
        tables = how.make(ranks)
        before = weights_of(tables)
        by_batch: list[torch.Tensor] = []
        # As in training, the ids of a batch travel while the one before it is updated.
        sent = [tables.send(*batches[0].share(ranks.rank, ranks.world_size))]
        for number, bags in enumerate(batches):
            if number + 1 < len(batches):
                sent.append(tables.send(*batches[number + 1].share(ranks.rank, ranks.world_size)))
            pooled = tables.lookup(sent[number], bags.num_valid, RATE)
            gradient = bags.gradient.split(size)[ranks.rank]
            chunks: list[torch.Tensor] = []
            for start in range(0, size, CHUNK_SIZE):
                end = min(start + CHUNK_SIZE, size)
                chunks.append(pooled.chunk(start, end).clone())
                pooled.set_gradient(start, end, gradient[start:end] * pooled.scale)
            agree(ranks, NO_WISHES)
            pooled.update()
            by_batch.append(torch.cat(chunks))
        return Made(before, weights_of(tables), by_batch)


def whole(by_rank: list[dict[tuple[str, int, int], torch.Tensor]]) -> dict[str, torch.Tensor]:
    tables = {name: torch.full((rows, DIM), torch.nan) for name, rows in ROWS.items()}
    for shards in by_rank:
        for (name, row, column), weights in shards.items():
            tables[name][row : row + weights.shape[0], column : column + weights.shape[1]] = weights
    return tables


def check_against_reference(by_rank: list[Made], how: How, batches: list[Bags]) -> None:
    reference = ReferenceTables(whole([made.before for made in by_rank]), how.optimizer, how.pooling)
    close = {"rtol": 1e-5, "atol": 2e-6} if how.exchange_dtype == "fp32" else {"rtol": 4e-3, "atol": 2e-3}
    for number, bags in enumerate(batches):
        pooled = torch.cat([made.pooled[number] for made in by_rank])
        torch.testing.assert_close(pooled.double(), reference(bags, SCALE), **close)
    before = whole([made.before for made in by_rank])
    for name, table in whole([made.after for made in by_rank]).items():
        torch.testing.assert_close(table.double(), reference.weights[name], **close)
        assert not torch.equal(table, before[name]), name


CASES = [
    (sharding_type, optimizer)
    for optimizer in ("sgd", "rowwise_adagrad", "adagrad")
    for sharding_type in types_for(optimizer)
]


@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("sharding_type", "optimizer"), CASES)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_three_updates_follow_the_float64_reference(
    rank_pools: RankPools,
    world_size: int,
    sharding_type: ShardingType,
    optimizer: Any,
    way: Way,
    exchange_dtype: Any,
):
    how = How(plan_of(TABLES, sharding_type, world_size), way, optimizer, exchange_dtype)
    batches = three_batches()
    assert any((bags.lengths == 0).any() for bags in batches)
    check_against_reference(rank_pools.of(world_size).run(look_up_and_update, how, batches), how, batches)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_plan_of_all_types_at_once_pools_as_the_float64_reference(
    rank_pools: RankPools, world_size: int, way: Way, pooling: Any
):
    how = How(mixed_plan(TABLES, world_size), way, "adagrad", pooling=pooling)
    batches = three_batches()
    check_against_reference(rank_pools.of(world_size).run(look_up_and_update, how, batches), how, batches)


@pytest.mark.parametrize("world_size", [2, 4])
def test_memory_and_network_move_the_tables_alike_to_the_bit(rank_pools: RankPools, world_size: int):
    plan, batches = mixed_plan(TABLES, world_size), three_batches()
    by_way = [
        rank_pools.of(world_size).run(look_up_and_update, How(plan, way, "adagrad"), batches)
        for way in ("memory", "network")
    ]
    for by_memory, by_network in zip(*by_way, strict=True):
        assert by_memory.after.keys() == by_network.after.keys()
        for place, weights in by_memory.after.items():
            assert torch.equal(weights, by_network.after[place]), place


@pytest.mark.parametrize("way", WAYS)
def test_the_mean_of_bags_of_one_id_is_that_id_to_the_bit(rank_pools: RankPools, way: Way):
    bags, plan = [random_bags(least=1, most=1)], mixed_plan(TABLES, 2)
    summed, averaged = (
        rank_pools.of(2).run(look_up_and_update, How(plan, way, pooling=pooling), bags) for pooling in ("sum", "mean")
    )
    for once, again in zip(summed, averaged, strict=True):
        assert torch.equal(once.pooled[0], again.pooled[0])
        assert all(torch.equal(weights, again.after[place]) for place, weights in once.after.items())


def no_tables(ranks: Ranks) -> ShardedTables:
    optimizer = TableOptimizer("rowwise_adagrad", SCALE)
    return ShardedTables(Plan(ranks.world_size, ()), optimizer, ranks, exchange_dtype="fp32", seed=0, chunk_size=4)


def step_without_tables(ranks: Ranks) -> tuple[torch.Size, torch.Tensor | None, list[Any]]:
    tables = no_tables(ranks)
    sent = tables.send(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
    pooled = tables.lookup(sent, GLOBAL_SIZE, RATE)
    chunk = pooled.chunk(0, 4).requires_grad_()
    dense = torch.ones(4, 3)
    torch.cat([dense, chunk.flatten(1)], dim=1).sum().backward()
    assert chunk.grad is not None
    pooled.set_gradient(0, 4, chunk.grad * pooled.scale)
    pooled.update()
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
    label = Label.of(Setting(64, 16).resolved(ranks.world_size), data_checksum=None)
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
