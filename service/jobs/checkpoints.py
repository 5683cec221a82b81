"""Checkpoints of a job, as found in its run directory."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlrm.record import CheckpointFaultError, CheckpointManifest, RunDirectory, list_checkpoints
from service.jobs.models import Job


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. Its files are not compared with their checksums; an attempt that resumes from it does."""

    path: Path
    manifest: CheckpointManifest
    time: datetime
    """Time of completion."""


def list_job_checkpoints(job: Job) -> list[Checkpoint]:
    """List the complete checkpoints of a job, newest first."""
    checkpoints: list[Checkpoint] = []
    for directory in list_checkpoints(RunDirectory(Path(job.run_directory)).checkpoints):
        try:
            manifest = directory.read_manifest()
            checkpoints.append(Checkpoint(directory.path, manifest, datetime.fromtimestamp(manifest.time, UTC)))
        except (CheckpointFaultError, OverflowError, ValueError, OSError):
            # Still being written, left by a crash, or not a checkpoint of this program.
            continue
    return checkpoints


def find_newest_step_saved_since(job: Job, time: datetime) -> int | None:
    """Return the step of the newest checkpoint completed at or after `time`; None where there is none."""
    return next((checkpoint.manifest.step for checkpoint in list_job_checkpoints(job) if checkpoint.time >= time), None)
