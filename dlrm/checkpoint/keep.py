"""Choice of the checkpoints that are kept, and removal of the others."""

import contextlib
import shutil
from pathlib import Path

from dlrm.record import COMPLETE, CheckpointDirectory, CheckpointFaultError, list_checkpoints


def remove_old_checkpoints(directory: Path, newest_step: int, num_kept: int, best_step: int | None = None) -> None:
    """Keep the checkpoint of `newest_step`, which was just written, and complete earlier ones, `num_kept` in all.

    best_step: step of the best model so far, whose checkpoint is kept in addition; None where there is none.

    Later checkpoints were skipped when the run resumed from an earlier one; they are removed, and so are incomplete
    ones. A checkpoint that cannot be read now counts as complete, since it may be intact; one that cannot be removed
    stays.
    """
    num_left = num_kept - 1
    with contextlib.suppress(OSError):
        for checkpoint in list_checkpoints(directory):
            if checkpoint.step in (newest_step, best_step):
                continue
            if checkpoint.step < newest_step and num_left > 0 and not _is_incomplete(checkpoint):
                num_left -= 1
                continue
            remove_checkpoint(checkpoint.path)


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
