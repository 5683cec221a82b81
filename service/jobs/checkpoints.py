"""Checkpoints of a job, as found in its run directory."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlrm.record import CheckpointFaultError, RunDirectory, list_checkpoints
from service.jobs.models import Job


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint. Its files are not compared with their checksums; an attempt that resumes from it does."""

    step: int
    """Batches consumed."""
    num_steps: int
    num_samples: int
    num_bytes: int
    world_size: int
    time: datetime
    """Time of completion."""
    path: str
    """Path of its directory; also a URI where the service does not see it."""


def list_job_checkpoints(job: Job) -> list[Checkpoint]:
    """List the complete checkpoints of a job, newest first."""
    checkpoints: list[Checkpoint] = []
    for directory in list_checkpoints(RunDirectory(Path(job.run_directory)).checkpoints):
        try:
            manifest = directory.read_manifest()
            checkpoints.append(
                Checkpoint(
                    step=manifest.step,
                    num_steps=manifest.num_steps,
                    num_samples=manifest.num_samples,
                    num_bytes=manifest.num_bytes,
                    world_size=manifest.world_size,
                    time=datetime.fromtimestamp(manifest.time, UTC),
                    path=str(directory.path),
                )
            )
        except (CheckpointFaultError, OverflowError, ValueError, OSError):
            # Still being written, left by a crash, or not a checkpoint of this program.
            continue
    return checkpoints


def find_newest_step_saved_since(job: Job, time: datetime) -> int | None:
    """Return the step of the newest checkpoint completed at or after `time`; None if absent."""
    return next((checkpoint.step for checkpoint in list_job_checkpoints(job) if checkpoint.time >= time), None)
