"""Sharded tables by themselves: what they pool, and what one update does to them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dlrm.checkpoint.label import Label
from dlrm.checkpoint.state import TrainingState
from dlrm.checkpoint.write import write_checkpoint
from dlrm.progress import Progress
from sharding.plan import Table, make_plan
from sharding.ranks import Ranks
from sharding.tables import ShardedTables, TableOptimizer
from tests.distributed.rank_pool import RankPools
from tests.distributed.training import Setting

ROWS = {"large": 500, "small": 3, "middle": 40}
DIM, GLOBAL_SIZE, CHUNK_SIZE, RATE = 8, 24, 5, 0.5


@dataclass(frozen=True)
class Bags:
    """Of all samples of a global batch, and the gradient of what is pooled of them."""

    lengths: torch.Tensor
    """[F, B] int32"""
    ids: list[torch.Tensor]
    """By feature."""
    gradient: torch.Tensor
    """[B, F, D]"""

    def share(self, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """ids and lengths of one rank, as `lookup` takes them."""
        size = GLOBAL_SIZE // world_size
        lengths = self.lengths.split(size, dim=1)
        of_rank = [
            ids.split([int(part[feature].sum()) for part in lengths])[rank] for feature, ids in enumerate(self.ids)
        ]
        return torch.cat(of_rank), lengths[rank].reshape(-1)


def random_bags(most: int, least: int = 0) -> Bags:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(least, most + 1, (len(ROWS), GLOBAL_SIZE), dtype=torch.int32, generator=generator)
    counts = lengths.sum(dim=1).tolist()
    ids = [torch.randint(0, rows, (n,), generator=generator) for rows, n in zip(ROWS.values(), counts, strict=True)]
    return Bags(lengths, ids, torch.randn(GLOBAL_SIZE, len(ROWS), DIM, generator=generator) / GLOBAL_SIZE)


def tables_of(ranks: Ranks, plan: str, pooling: str = "sum", exchange_dtype: str = "fp32") -> ShardedTables:
    tables = [Table(name, rows, DIM) for name, rows in ROWS.items()]
    options: Any = {"exchange_dtype": exchange_dtype, "pooling": pooling}
    made = make_plan(tables, ranks.world_size, plan)  # pyright: ignore[reportArgumentType]
    return ShardedTables(made, TableOptimizer("sgd", 32.0), ranks, seed=5, **options)


def weights_of(tables: ShardedTables) -> dict[tuple[str, int], torch.Tensor]:
    return {(name, row): weights.clone() for name, row, _, weights in tables.shards()}


def look_up_and_update(ranks: Ranks, plan: str, pooling: str, bags: Bags) -> dict[str, Any]:
    """Chunk by chunk, the gradient of one before the next is taken, as the dense part does."""
    tables = tables_of(ranks, plan, pooling)
    before = weights_of(tables)
    tables.set_learning_rate(RATE)
    block = tables.lookup(*bags.share(ranks.rank, ranks.world_size), GLOBAL_SIZE)
    size = GLOBAL_SIZE // ranks.world_size
    gradient = bags.gradient.split(size)[ranks.rank]
    pooled: list[torch.Tensor] = []
    for start in range(0, size, CHUNK_SIZE):
        end = min(start + CHUNK_SIZE, size)
        pooled.append(block.chunk(start, end).clone())
        block.set_gradient(start, end, gradient[start:end] * block.scale)
    tables.update(block)
    return {"pooled": torch.cat(pooled), "before": before, "after": weights_of(tables)}


def whole(by_rank: list[dict[str, Any]], when: str) -> dict[str, torch.Tensor]:
    tables = {name: torch.full((rows, DIM), torch.nan) for name, rows in ROWS.items()}
    for told in by_rank:
        for (name, row), weights in told[when].items():
            tables[name][row : row + len(weights)] = weights
    return tables


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_pooling_and_its_update_follow_the_float64_reference(
    rank_pools: RankPools, world_size: int, plan: str, pooling: str
):
    bags = random_bags(most=4)
    assert (bags.lengths == 0).any()
    by_rank: list[dict[str, Any]] = rank_pools.of(world_size).run(look_up_and_update, plan, pooling, bags)

    pooled, before, after = torch.cat([told["pooled"] for told in by_rank]), whole(by_rank, "before"), {}
    for feature, (name, weights) in enumerate(before.items()):
        table = weights.double().requires_grad_()
        offsets = F.pad(bags.lengths[feature].cumsum(0), (1, 0))[:-1]
        expected = F.embedding_bag(bags.ids[feature], table, offsets, mode=pooling)
        torch.testing.assert_close(pooled[:, feature].double(), expected.detach(), rtol=1e-6, atol=1e-7)
        expected.backward(bags.gradient[:, feature].double())
        assert table.grad is not None
        after[name] = table.detach() - RATE * table.grad
    for name, table in whole(by_rank, "after").items():
        torch.testing.assert_close(table.double(), after[name], rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(table, before[name])


def test_the_mean_of_bags_of_one_id_is_that_id_to_the_bit(rank_pools: RankPools):
    bags = random_bags(least=1, most=1)
    summed, averaged = (rank_pools.of(2).run(look_up_and_update, "auto", how, bags) for how in ("sum", "mean"))
    for once, again in zip(summed, averaged, strict=True):
        assert torch.equal(once["pooled"], again["pooled"])
        assert all(torch.equal(weights, again["after"][shard]) for shard, weights in once["after"].items())


def kept_of_lookup(ranks: Ranks, plan: str, exchange_dtype: str, bags: Bags) -> tuple[int, int]:
    """Tensors that a lookup saves for its backward pass, and those of them that share memory with its block."""
    tables = tables_of(ranks, plan, exchange_dtype=exchange_dtype)
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block = tables.lookup(*bags.share(ranks.rank, ranks.world_size), GLOBAL_SIZE)
    place = block.pooled.untyped_storage().data_ptr()
    return len(kept), sum(tensor.untyped_storage().data_ptr() == place for tensor in kept)


@pytest.mark.parametrize("exchange_dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_no_backward_pass_keeps_the_pooled_embeddings_that_their_gradient_replaces(
    rank_pools: RankPools, world_size: int, plan: str, exchange_dtype: str
):
    for num_kept, num_of_block in rank_pools.of(world_size).run(
        kept_of_lookup, plan, exchange_dtype, random_bags(most=4)
    ):
        assert num_kept > 0
        assert num_of_block == 0


def no_tables(ranks: Ranks) -> ShardedTables:
    plan = make_plan([], ranks.world_size, "auto")
    return ShardedTables(plan, TableOptimizer("rowwise_adagrad", 32.0), ranks, exchange_dtype="fp32", seed=0)


def step_without_tables(ranks: Ranks) -> tuple[torch.Size, torch.Tensor | None, list[Any]]:
    tables = no_tables(ranks)
    tables.set_learning_rate(0.1)
    block = tables.lookup(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32), GLOBAL_SIZE)
    chunk = block.chunk(0, 4).requires_grad_()
    dense = torch.ones(4, 3)
    torch.cat([dense, chunk.flatten(1)], dim=1).sum().backward()
    assert chunk.grad is not None
    block.set_gradient(0, 4, chunk.grad * block.scale)
    tables.update(block)
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
