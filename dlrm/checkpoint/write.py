"""Writes one checkpoint: all ranks their parts, and at last `COMPLETE`."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from dlrm.checkpoint.errors import CheckpointError, checkpoint_errors
from dlrm.checkpoint.label import Label
from dlrm.progress import Progress
from dlrm.record import CheckpointFile, CheckpointManifest
from sharding.agree import told_by_all

Result = TypeVar("Result")


def write_checkpoint(
    path: Path, state: dict[str, Any], progress: Progress, label: Label, group: dist.ProcessGroup
) -> CheckpointManifest:
    """Write `state`, which nobody changes meanwhile, to the directory `path`. Collective over `group`.

    What of that name was there before is replaced. Raises CheckpointError, on every rank; then nothing is left.
    """
    rank, world_size = group.rank(), group.size()
    try:
        _on_all(group, path, lambda: _make_empty(path) if rank == 0 else None)
        with checkpoint_errors(path, "cannot be written"):
            save(state, storage_writer=FileSystemWriter(path), process_group=group)
        names = _on_all(group, path, lambda: sorted(file.name for file in path.iterdir()) if rank == 0 else [])[0]
        parts = _on_all(group, path, lambda: {name: CheckpointFile.of(path / name) for name in names[rank::world_size]})
        manifest = CheckpointManifest(
            step=progress.step,
            num_steps=progress.num_steps,
            num_samples=progress.num_samples,
            time=time.time(),
            world_size=world_size,
            identity=label.identity,
            data_checksum=label.data_checksum,
            files={name: file for part in parts for name, file in part.items()},
        )
        _on_all(group, path, lambda: manifest.write(path) if rank == 0 else None)
    except CheckpointError:
        if rank == 0:
            # A full disk has no room for half a checkpoint.
            shutil.rmtree(path, ignore_errors=True)
        raise
    return manifest


def _make_empty(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)


def _on_all(group: dist.ProcessGroup, path: Path, work: Callable[[], Result]) -> list[Result]:
    """What `work` answers on every rank. Raises CheckpointError on all of them where it fails on one."""
    try:
        answer: tuple[Result | None, str | None] = work(), None
    except OSError as error:
        answer = None, str(error)
    answers = told_by_all(group, answer)
    for rank, (_, fault) in enumerate(answers):
        if fault is not None:
            raise CheckpointError(f"{path}: the checkpoint cannot be written, on rank {rank}: {fault}")
    return [cast("Result", result) for result, _ in answers]
