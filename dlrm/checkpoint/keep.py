"""Which checkpoints stay."""

import contextlib
import shutil
from pathlib import Path

from dlrm.record import COMPLETE, CheckpointFaultError, checkpoints_in


def remove_others(directory: Path, newest_step: int, num_kept: int) -> None:
    """Keep the `num_kept` newest complete checkpoints up to `newest_step`, which was just written.

    Later ones were passed over when the run went on from an earlier one; they and half ones go too.
    """
    num_left = num_kept
    for checkpoint in checkpoints_in(directory):
        if checkpoint.step <= newest_step and num_left > 0:
            with contextlib.suppress(CheckpointFaultError, OSError):
                checkpoint.manifest()
                num_left -= 1
                continue
        # What cannot be removed stays; training has no need of it to go.
        with contextlib.suppress(OSError):
            # First what makes it count: half a checkpoint must not look whole.
            (checkpoint.path / COMPLETE).unlink(missing_ok=True)
            shutil.rmtree(checkpoint.path)
