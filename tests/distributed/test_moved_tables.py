"""A checkpoint of tables goes on under any plan that its optimizer allows, on any number of ranks."""

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed.checkpoint as dcp

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.planner import ShardingType
from tests.distributed.plans import plan_of, types_for
from tests.distributed.rank_pool import RankPools
from tests.distributed.read_back import read_whole
from tests.distributed.table_batches import GLOBAL_SIZE, RATE, TABLES, Bags, random_bags
from tests.distributed.ways import TRANSPORT_KINDS, TransportKind, kernels_of, transport_of

WORLD_SIZES = [1, 2, 4]
Optimizer = Literal["sgd", "rowwise_adagrad", "adagrad"]


def step_from_to(
    ranks: Ranks,
    sharding_type: ShardingType,
    optimizer: Optimizer,
    way: TransportKind,
    before: Path | None,
    after: Path,
    bags: Bags,
) -> None:
    """One update of the tables of checkpoint `before`, or of fresh ones, saved as `after`."""
    with kernels_of(way):
        tables = ShardedTables(
            plan_of(TABLES, sharding_type, ranks.world_size),
            TableOptimizer(optimizer, 32.0),
            ranks,
            exchange_dtype="fp32",
            seed=5,
            chunk_size=GLOBAL_SIZE,
            transport=transport_of(way),
        )
        if before is not None:
            dcp.load({"tables": tables.state()}, checkpoint_id=before, process_group=ranks.background_group)
            all_reduce_votes(ranks, DEFAULT_VOTE)
        pooled = tables.lookup(tables.start_input_dist(bags.share(ranks.rank, ranks.world_size)), bags.num_valid, RATE)
        size = GLOBAL_SIZE // ranks.world_size
        pooled.read_chunk(0, size)
        pooled.write_gradient(0, size, bags.gradient.split(size)[ranks.rank] * pooled.scale)
        all_reduce_votes(ranks, DEFAULT_VOTE)
        pooled.apply_update(RATE)
        dcp.save({"tables": tables.state()}, checkpoint_id=after, process_group=ranks.background_group)


def weights_and_sums(path: Path) -> dict[str, Any]:
    return {name: value for name, value in read_whole(path).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("way", TRANSPORT_KINDS)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_tables_that_move_through_all_plans_and_ranks_train_as_those_that_stay(
    rank_pools: RankPools, tmp_path: Path, optimizer: Optimizer, way: TransportKind
):
    types = types_for(optimizer)
    # From every type to the next one, and back to the first, each time on other ranks.
    path = [(types[number % len(types)], WORLD_SIZES[number % 3]) for number in range(len(types) + 1)]
    moved: Path | None = None
    stayed: Path | None = None
    for number, (sharding_type, world_size) in enumerate(path):
        bags = random_bags(most=4, seed=number)
        last_moved, moved = moved, tmp_path / f"moved-{number}"
        last_stayed, stayed = stayed, tmp_path / f"stayed-{number}"
        arguments = (sharding_type, optimizer, way, last_moved, moved, bags)
        rank_pools.of(world_size).run(step_from_to, *arguments)
        rank_pools.of(1).run(step_from_to, "table_wise", optimizer, way, last_stayed, stayed, bags)
    assert moved is not None
    assert stayed is not None
    expected, found = weights_and_sums(stayed), weights_and_sums(moved)
    assert found.keys() == expected.keys()
    assert len(expected) == len(TABLES) * (1 if optimizer == "sgd" else 2)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
