"""Choice of the checkpoints that are kept, and removal of the others."""

import contextlib
import shutil
from pathlib import Path

from dlrm.record import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    RunDirectory,
    is_uploaded,
    list_checkpoints,
)


def remove_old_checkpoints(
    directory: RunDirectory, newest_step: int, num_kept: int, best_step: int | None = None
) -> list[int]:
    """Keep the checkpoint of `newest_step`, which was just written, and complete earlier ones, `num_kept` in all.

    Return the steps of those that were removed.

    best_step: step of the best model so far, whose checkpoint is kept in addition; None if absent.

    If the run is kept in a bucket, every complete checkpoint is kept too until it is there, or a newer one: the
    bucket may be out of reach for hours.

    Later checkpoints were skipped when the run resumed from an earlier one; they are removed, and so are incomplete
    ones. A checkpoint that cannot be read now counts as complete, since it may be intact; one that cannot be removed
    stays.
    """
    removed: list[int] = []
    num_left = num_kept - 1
    with contextlib.suppress(OSError):
        is_safe = not directory.run_store.exists()
        for checkpoint in list_checkpoints(directory.checkpoints):
            is_safe = is_safe or (checkpoint.step <= newest_step and is_uploaded(directory, checkpoint))
            if checkpoint.step in (newest_step, best_step):
                continue
            is_whole = checkpoint.step < newest_step and not _is_incomplete(checkpoint)
            if is_whole and (num_left > 0 or not is_safe):
                num_left -= 1
                continue
            remove_checkpoint(checkpoint.path)
            removed.append(checkpoint.step)
    return removed


def list_not_uploaded(directory: RunDirectory) -> list[CheckpointDirectory]:
    """List the checkpoints that wait to be uploaded to the bucket of the run; empty if the run has no bucket."""
    if not directory.run_store.exists():
        return []
    return [found for found in list_checkpoints(directory.checkpoints) if not is_uploaded(directory, found)]


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, or its remains; `COMPLETE` first, so that a partly removed checkpoint counts as incomplete.

    Raises OSError.
    """
    if path.exists():
        (path / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(path)


def _is_incomplete(checkpoint: CheckpointDirectory) -> bool:
    try:
        checkpoint.read_manifest()
    except CheckpointFaultError:
        return True
    except OSError:
        return False
    return False
