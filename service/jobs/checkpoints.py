"""The checkpoints of a job, as they lie in its run directory."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlrm.record import CheckpointFaultError, CheckpointManifest, RunDirectory, checkpoints_in
from service.jobs.models import Job


@dataclass(frozen=True)
class Checkpoint:
    """One that is complete; its files are as unseen as whoever goes on from it finds them."""

    path: Path
    manifest: CheckpointManifest
    time: datetime
    """When it was complete."""


def checkpoints_of(job: Job) -> list[Checkpoint]:
    """The newest first; none where nothing was saved yet."""
    found: list[Checkpoint] = []
    for directory in checkpoints_in(RunDirectory(Path(job.run_directory)).checkpoints):
        try:
            manifest = directory.manifest()
            found.append(Checkpoint(directory.path, manifest, datetime.fromtimestamp(manifest.time, UTC)))
        except (CheckpointFaultError, OverflowError, ValueError, OSError):
            # Being written, left by a crash, or no checkpoint of ours.
            continue
    return found


def newest_step_saved_since(job: Job, time: datetime) -> int | None:
    """Step of the newest checkpoint that was completed after `time`; None where none was."""
    return next((found.manifest.step for found in checkpoints_of(job) if found.time >= time), None)
