"""Which checkpoints stay."""

import contextlib
import shutil
from pathlib import Path

from dlrm.record import COMPLETE, CheckpointDirectory, CheckpointFaultError, checkpoints_in


def remove_others(directory: Path, newest_step: int, num_kept: int) -> None:
    """Keep the checkpoint of `newest_step`, which was just written, and the complete ones before it: `num_kept` in all.

    Later ones were passed over when the run went on from an earlier one; they and half ones go too. What cannot be read
    now may be whole: it stays, and so does what cannot be removed.
    """
    num_left = num_kept - 1
    with contextlib.suppress(OSError):
        for checkpoint in checkpoints_in(directory):
            if checkpoint.step == newest_step:
                continue
            if checkpoint.step < newest_step and num_left > 0 and not _is_fault(checkpoint):
                num_left -= 1
                continue
            remove(checkpoint.path)


def remove(path: Path) -> None:
    """Remove a checkpoint, or what is left of it: first what makes it count, since half of one must not look whole.

    Raises OSError.
    """
    if path.exists():
        (path / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(path)


def _is_fault(checkpoint: CheckpointDirectory) -> bool:
    try:
        checkpoint.manifest()
    except CheckpointFaultError:
        return True
    except OSError:
        return False
    return False
