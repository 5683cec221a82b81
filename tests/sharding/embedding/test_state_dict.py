"""Checkpoints have shards in pieces."""

from pathlib import Path
from unittest import mock

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_mixed_plan
from tests.sharding.embedding.table_batches import DIM, TABLES
from tests.sharding.embedding.table_steps import TableLayout, copy_weights

PIECE_BYTES = 7 * DIM * 4
"""Bytes of seven whole rows."""


def save_and_load(ranks: Ranks, path: Path) -> int:
    """Save tables in small pieces, load them in large ones; return the bytes of the largest piece."""
    tables = TableLayout(make_mixed_plan(TABLES, ranks.world_size), optimizer="adagrad").make_tables(ranks)
    before = copy_weights(tables)
    with mock.patch("sharding.embedding.state_dict.PIECE_BYTES", PIECE_BYTES):
        state = tables.state_dict()
        save({"tables": state}, checkpoint_id=path, process_group=ranks.background_group)
    pieces = [
        shard.tensor.nbytes
        for table in (*state["weights"].values(), *state["optimizer"].values())
        if isinstance(table, ShardedTensor)
        for shard in table.local_shards()
    ]
    for shard in tables.list_shards():
        shard.weights.zero_()
    load({"tables": tables.state_dict()}, checkpoint_id=path, process_group=ranks.background_group)
    after = copy_weights(tables)
    assert all(torch.equal(after[name], weights) for name, weights in before.items())
    return max(pieces)


def test_a_checkpoint_of_small_pieces_is_read_into_large_ones(rank_pools: RankPools, tmp_path: Path):
    assert max(rank_pools.of(2).run(save_and_load, tmp_path)) == PIECE_BYTES
