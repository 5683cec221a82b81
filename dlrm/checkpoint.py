"""Checkpoints: everything a run is, written by all ranks together."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from dlrm.loop import Progress
from dlrm.model import DLRM
from sharding.ranks import Ranks
from sharding.tables import ShardedTables


class CheckpointError(OSError):
    """A checkpoint that could not be written or read; names its directory and the first cause."""


@contextmanager
def checkpoint_errors(path: Path, what: str) -> Iterator[None]:
    """Turn what torch raises, which is no `Exception` and has the causes by rank, into a CheckpointError.

    what: such as "cannot be written".
    """
    try:
        yield
    except CheckpointException as error:
        rank, cause = next(iter(error.failures.items()))
        raise CheckpointError(f"{path}: the checkpoint {what}, on rank {rank}: {cause[0]}") from error


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

    An older checkpoint of that name is replaced. Raises CheckpointError.
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
    with checkpoint_errors(path, "cannot be written"):
        save(state, checkpoint_id=part)
    if ranks.rank == 0:
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    dist.barrier(group=ranks.dense_group)
    return path
