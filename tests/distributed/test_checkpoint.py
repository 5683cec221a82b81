"""What a checkpoint holds, read back whole and compared between ways to split the same training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from dlrm.checkpoint import CheckpointError, save_checkpoint
from dlrm.device_batch import to_device
from dlrm.loop import Progress
from dlrm.optimizers import StepRates
from sharding.ranks import Ranks
from tests.distributed.rank_pool import RankPools
from tests.distributed.reference import GlobalBatch, random_batches
from tests.distributed.training import Setting

SETTING = Setting(256, 64, "rowwise_adagrad", dense_rate=0.05, table_rate=0.01)


def train_and_save(ranks: Ranks, directory: Path, setting: Setting, batches: list[GlobalBatch]) -> str:
    parts = setting.build(ranks)
    for batch in batches:
        share = batch.share(ranks.rank, ranks.world_size)
        parts.step(to_device(share, ranks.device), StepRates(setting.dense_rate, setting.table_rate))
    try:
        return str(
            save_checkpoint(
                directory,
                model=parts.model,
                tables=parts.tables,
                optimizer=parts.optimizer,
                progress=Progress(num_steps=10, step=len(batches), num_samples=setting.global_size * len(batches)),
                gradient_scale=256.0,
                ranks=ranks,
            )
        )
    except CheckpointError as error:
        return f"CheckpointError: {error}"


def read_whole(path: Path) -> dict[str, Any]:
    """Everything in a checkpoint, tensors put together from their shards."""
    entries = FileSystemReader(path).read_metadata().state_dict_metadata
    state: dict[str, Any] = {
        name: torch.empty(entry.size) if isinstance(entry, TensorStorageMetadata) else None
        for name, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata | BytesStorageMetadata)
    }
    load(state, checkpoint_id=path, no_dist=True)
    return state


@pytest.mark.parametrize("plan", ["table_wise", "row_wise"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_checkpoint_holds_the_same_however_many_ranks_wrote_it(
    rank_pools: RankPools, tmp_path: Path, world_size: int, plan: str
):
    setting = Setting(256, 64, "rowwise_adagrad", plan, dense_rate=0.05, table_rate=0.01)
    batches = random_batches(4, 256, [rows for _, rows in setting.table_rows])
    (of_one,) = rank_pools.of(1).run(train_and_save, tmp_path / "one", SETTING, batches)
    of_many = rank_pools.of(world_size).run(train_and_save, tmp_path / "many", setting, batches)[0]

    expected, found = read_whole(Path(of_one)), read_whole(Path(of_many))
    assert found.keys() == expected.keys()
    for kind in ("tables.weights", "tables.optimizer", "dense.", "progress.step", "gradient_scale"):
        assert any(name.startswith(kind) for name in found), kind
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert (found["progress.step"], found["progress.num_samples"]) == (4, 1024)


def test_a_checkpoint_that_cannot_be_written_names_its_directory_and_the_cause(rank_pools: RankPools, tmp_path: Path):
    batches = random_batches(1, 256, [rows for _, rows in SETTING.table_rows])
    occupied = tmp_path / "checkpoints"
    occupied.write_text("a file where the directory should be")
    for said in rank_pools.of(2).run(train_and_save, occupied, SETTING, batches):
        assert said.startswith(f"CheckpointError: {occupied}/step-00000001: the checkpoint cannot be written, on rank")
        assert "Not a directory" in said or "File exists" in said
