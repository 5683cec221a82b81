"""Optimizer state of tables, read from a checkpoint in pieces."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import save

from dlrm.train.warm_start import optimizer_state
from dlrm.train.warm_start.optimizer_state import SavedState, fill_tables
from sharding.embedding import Shard, ShardSpec
from sharding.planner import Block, Table

DIM = 8
NAME = "tables.optimizer.site"


@pytest.mark.parametrize("is_by_row", [True, False])
def test_pieces_of_rows_give_the_whole_state_and_none_is_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_by_row: bool
):
    random = torch.Generator().manual_seed(1)
    stored = torch.rand((50,) if is_by_row else (50, DIM), generator=random)
    save({NAME: stored}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    # A block of the last 40 rows, and of 12 that the checkpoint lacks.
    spec = ShardSpec(0, Table("site", 62, DIM), Block(0, 10, 52, 2, 4))
    shard = Shard(spec, torch.zeros(52, 4), torch.zeros((52,) if is_by_row else (52, 4)))
    sizes: list[int] = []
    read_rows = SavedState.read_rows

    def count(self: SavedState, name: str, first: int, at_most: int) -> torch.Tensor:
        rows = read_rows(self, name, first, at_most)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(SavedState, "read_rows", count)
    monkeypatch.setattr(optimizer_state, "PIECE_BYTES", 9 * DIM * 4)
    fill_tables([shard], SavedState(tmp_path / "checkpoint"), 2.0)
    expected = stored[10:] if is_by_row else stored[10:, 2:6]
    assert torch.equal(shard.state[:40], 2 * expected)
    assert not shard.state[40:].any()
    assert max(sizes) == 9
    assert sum(sizes) == 40
