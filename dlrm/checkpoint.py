"""Checkpoints: everything a run is, written by all ranks together."""

import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from dlrm.loop import Progress
from dlrm.model import DLRM
from sharding.ranks import Ranks
from sharding.tables import ShardedTables


def save_checkpoint(
    directory: Path,
    *,
    model: DLRM,
    tables: ShardedTables,
    optimizer: Optimizer,
    progress: Progress,
    gradient_scale: float,
    ranks: Ranks,
) -> Path:
    """Write `directory`/step-<batches consumed>, whole or not at all, and return it. Collective.

    An older checkpoint of that name is replaced.
    """
    path = directory / f"step-{progress.step:08d}"
    part = path.with_name(f"{path.name}.part")
    state: dict[str, Any] = {
        "tables": tables.state(),
        "dense": model.state_dict(),
        "dense_optimizer": optimizer.state_dict(),
        "progress": {"step": progress.step, "num_samples": progress.num_samples},
        "gradient_scale": gradient_scale,
    }
    if ranks.rank == 0:
        shutil.rmtree(part, ignore_errors=True)
    dist.barrier(group=ranks.dense_group)
    save(state, checkpoint_id=part)
    if ranks.rank == 0:
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    dist.barrier(group=ranks.dense_group)
    return path
