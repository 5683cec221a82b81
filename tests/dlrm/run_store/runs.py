"""Run directories as a training leaves them, without a training."""

import secrets
from pathlib import Path

from dlrm.record import CheckpointManifest, FileRecord, RunDirectory, RunStoreRecord

URI = "s3://bucket/runs"
RUN = f"{URI}/run"


def make_run(path: Path) -> RunDirectory:
    """Make a run directory that is kept in the bucket as `run`."""
    directory = RunDirectory(path)
    directory.attempt(1).create()
    directory.spec.write_text('{"name": "run"}')
    RunStoreRecord(uri=URI, run_id="run").write(directory.run_store)
    return directory


def write_checkpoint(directory: RunDirectory, step: int, num_bytes: int = 1000, num_files: int = 2) -> Path:
    """Write a complete checkpoint of random bytes."""
    path = directory.checkpoint(step)
    path.mkdir(parents=True)
    for rank in range(num_files):
        (path / f"__{rank}_0.distcp").write_bytes(secrets.token_bytes(num_bytes))
    write_manifest(path, step, sorted(path.iterdir()))
    return path


def write_manifest(path: Path, step: int, files: list[Path]) -> None:
    manifest = CheckpointManifest(
        step=step,
        num_steps=100,
        num_samples=step * 10,
        time=0.0,
        world_size=1,
        identity={},
        data_checksum=None,
        files={file.name: FileRecord.from_file(file) for file in files},
    )
    manifest.write(path)
