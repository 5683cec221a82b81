"""Writes one checkpoint: all ranks write their parts, and `COMPLETE` is written last."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.keep import list_not_uploaded, remove_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.sharing import DirectoryRanks
from dlrm.checkpoint.state_files import save_state
from dlrm.checkpoint.tensors import count_bytes
from dlrm.record import CheckpointManifest, FileRecord, RunDirectory, RunStoreRecord
from sharding.comm.collectives import run_on_all_ranks

Result = TypeVar("Result")


def write_checkpoint(
    path: Path,
    state: dict[str, Any],
    progress: RunProgress,
    identity: RunIdentity,
    group: dist.ProcessGroup,
    sharers: DirectoryRanks | None = None,
) -> CheckpointManifest:
    """Write `state`, which must not change meanwhile, to the directory `path`. Collective over `group`.

    sharers: ranks that have the same `path`; None for all. In each such directory are the files of its ranks, and the
    manifest of all. Replaces anything at `path`, and returns the manifest. Raises CheckpointError on every rank; then
    nothing is left at `path`.
    """
    rank, world_size = group.rank(), group.size()
    sharers = sharers or DirectoryRanks.of_all(rank, world_size)

    def run_on_ranks(work: Callable[[], Result]) -> list[Result]:
        return run_on_all_ranks(group, lambda: _add_path_and_rank(work, path, rank), CheckpointError)

    # Those of the ranks that write to this disk.
    num_bytes = sum(sharers.select(run_on_ranks(lambda: count_bytes(state))))
    try:
        run_on_ranks(lambda: _create_directory(path, num_bytes) if sharers.is_first else None)
        save_state(state, path, group)
        listed = run_on_ranks(lambda: sorted(file.name for file in path.iterdir()) if sharers.is_first else [])
        names = sharers.share(listed[sharers.first])
        parts = run_on_ranks(lambda: {name: FileRecord.from_file(path / name) for name in names})
        manifest = CheckpointManifest(
            step=progress.step,
            num_steps=progress.num_steps,
            num_samples=progress.num_samples,
            # The same on all ranks.
            time=run_on_ranks(time.time)[0],
            world_size=world_size,
            identity=identity.settings,
            data_checksum=identity.data_checksum,
            files={name: file for part in parts for name, file in part.items()},
        )
        run_on_ranks(lambda: manifest.write(path) if sharers.is_first else None)
    except CheckpointError as error:
        # torch's error does not mention a full disk; checked before the removal below frees space.
        advice = _advise(path, num_bytes)
        if sharers.is_first:
            # Half a checkpoint would only fill the disk.
            with contextlib.suppress(OSError):
                remove_checkpoint(path)
        raise CheckpointError(f"{error}{advice}") from error
    return manifest


def _create_directory(path: Path, num_bytes: int) -> None:
    """Create the empty directory `path`. Raises OSError, also if the disk has less than `num_bytes` free."""
    remove_checkpoint(path)
    path.mkdir(parents=True)
    if shutil.disk_usage(path).free < num_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _advise(path: Path, num_bytes: int) -> str:
    """Return what the user can do, where a full disk is the likely cause; empty otherwise."""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return ""
    if free >= num_bytes:
        return ""
    directory = RunDirectory(path.parent.parent)
    record, waiting = RunStoreRecord.read(directory.run_store), list_not_uploaded(directory)
    sizes = f"{num_bytes / 1e6:,.0f} MB are needed, but only {free / 1e6:,.0f} MB are free"
    advice = "free space there, or lower run.keep_checkpoints"
    if record is not None and len(waiting) > 1:
        # Lowering run.keep_checkpoints would remove none of them.
        advice = f"{len(waiting)} checkpoints wait there to be uploaded to {record.uri}: free space, or mend that way"
    return f"; {sizes} in {path.parent}: {advice}"


def _add_path_and_rank(work: Callable[[], Result], path: Path, rank: int) -> Result:
    try:
        return work()
    except OSError as error:
        raise CheckpointError(f"{path}: the checkpoint cannot be written, on rank {rank}: {error}") from error
