"""A checkpoint of tables continues under any plan that its optimizer allows, on any number of ranks."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.embedding.make_transport import TransportName
from sharding.planner import ShardingType
from tests.cases import list_cases
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import list_types, make_uniform_plan
from tests.sharding.embedding.table_batches import GLOBAL_SIZE, LEARNING_RATE, TABLES, TableBatch, draw_batch
from tests.sharding.embedding.table_steps import OptimizerName
from tests.sharding.embedding.transport_kinds import TRANSPORTS, use_transport
from tests.sharding.read_checkpoint import read_whole

WORLD_SIZES = [1, 2, 4]
OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad")
TELLING = [("sgd", "memory"), ("rowwise_adagrad", "network"), ("adagrad", "torchrec")]


def update_checkpoint(
    ranks: Ranks,
    sharding_type: ShardingType,
    optimizer: OptimizerName,
    transport: TransportName,
    source: Path | None,
    target: Path,
    batch: TableBatch,
) -> None:
    """Make one update of the tables of checkpoint `source`, or of fresh ones, and save them as `target`."""
    with use_transport(transport, ranks.world_size):
        tables = ShardedTables(
            make_uniform_plan(TABLES, sharding_type, ranks.world_size),
            TableOptimizer(optimizer, 32.0, GLOBAL_SIZE),
            ranks,
            exchange_dtype="fp32",
            seed=5,
            chunk_size=GLOBAL_SIZE,
            transport=transport,
        )
        if source is not None:
            load({"tables": tables.state_dict()}, checkpoint_id=source, process_group=ranks.background_group)
            all_reduce_votes(ranks, DEFAULT_VOTE)
        handle = tables.start_input_dist(batch.share(ranks.rank, ranks.world_size))
        pooled = tables.lookup(handle, batch.num_valid, LEARNING_RATE)
        size = GLOBAL_SIZE // ranks.world_size
        pooled.read_chunk(0, size)
        pooled.write_gradient(0, size, batch.gradient.split(size)[ranks.rank] * pooled.scale)
        all_reduce_votes(ranks, DEFAULT_VOTE)
        pooled.apply_update(LEARNING_RATE)
        save({"tables": tables.state_dict()}, checkpoint_id=target, process_group=ranks.background_group)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    return {name: value for name, value in read_whole(path).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize(("optimizer", "transport"), list_cases(TELLING, OPTIMIZERS, TRANSPORTS))
def test_tables_that_move_through_all_plans_and_ranks_train_as_those_that_stay(
    rank_pools: RankPools, tmp_path: Path, optimizer: OptimizerName, transport: TransportName
):
    types = list_types(optimizer)
    # From every type to the next one, and back to the first, each time on other ranks.
    path: list[tuple[ShardingType, int]] = [
        (types[number % len(types)], WORLD_SIZES[number % 3]) for number in range(len(types) + 1)
    ]
    moved: Path | None = None
    stayed: Path | None = None
    for number, (sharding_type, world_size) in enumerate(path):
        batch = draw_batch(max_length=4, seed=number)
        last_moved, moved = moved, tmp_path / f"moved-{number}"
        last_stayed, stayed = stayed, tmp_path / f"stayed-{number}"
        run = rank_pools.of(world_size).run
        run(update_checkpoint, sharding_type, optimizer, transport, last_moved, moved, batch)
        run = rank_pools.of(1).run
        run(update_checkpoint, "table_wise", optimizer, transport, last_stayed, stayed, batch)
    assert moved is not None
    assert stayed is not None
    expected, found = read_tensors(stayed), read_tensors(moved)
    assert found.keys() == expected.keys()
    assert len(expected) == len(TABLES) * (1 if optimizer == "sgd" else 2)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
