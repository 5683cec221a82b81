"""Finds the checkpoint to go on from: the newest whose every byte is as it was written."""

from dataclasses import dataclass
from pathlib import Path

from dlrm.checkpoint.errors import CheckpointError
from dlrm.checkpoint.label import Label
from dlrm.record import CheckpointDirectory, CheckpointFaultError, CheckpointFile, CheckpointManifest, checkpoints_in
from dlrm.reporting.reporter import Reporter
from sharding.agree import told_by_all
from sharding.ranks import Ranks


@dataclass(frozen=True)
class SoundCheckpoint:
    """One whose files were all compared with their checksums."""

    path: Path
    manifest: CheckpointManifest


def newest_sound(directory: Path, label: Label, ranks: Ranks, reporter: Reporter) -> SoundCheckpoint | None:
    """The newest checkpoint in `directory` that is whole; None where there is none. Collective.

    Each one that is not is passed over with a warning. Raises DataError where one is of other settings than `label`,
    and CheckpointError where files cannot be read for another reason than being damaged: they may be read later.
    """
    found = checkpoints_in(directory) if ranks.rank == 0 else []
    for checkpoint in told_by_all(ranks.background_group, found)[0]:
        try:
            manifest = _agreed_manifest(checkpoint, ranks)
            label.check(checkpoint, manifest)
            size = f"{manifest.num_bytes / 1e6:,.0f} MB"
            reporter.progress("loading", f"checking the checkpoint of step {checkpoint.step:,} ({size})")
            verify(checkpoint, manifest, ranks)
        except CheckpointFaultError as fault:
            message = f"{checkpoint.path} is passed over: {fault}"
            reporter.event("checkpoint_passed_over", message, step=checkpoint.step)
            continue
        return SoundCheckpoint(checkpoint.path, manifest)
    return None


def _agreed_manifest(checkpoint: CheckpointDirectory, ranks: Ranks) -> CheckpointManifest:
    """What rank 0 reads, on every rank. Raises CheckpointFaultError and CheckpointError, on all."""
    read: CheckpointManifest | CheckpointFaultError | str | None = None
    if ranks.rank == 0:
        try:
            read = checkpoint.manifest()
        except CheckpointFaultError as error:
            read = error
        except OSError as error:
            read = str(error)
    answer = told_by_all(ranks.background_group, read)[0]
    if isinstance(answer, CheckpointManifest):
        return answer
    if isinstance(answer, CheckpointFaultError):
        raise answer
    raise CheckpointError(f"{checkpoint.path}: the checkpoint cannot be read: {answer}")


def verify(checkpoint: CheckpointDirectory, manifest: CheckpointManifest, ranks: Ranks) -> None:
    """Compare every file with the manifest, a share of them on each rank. Raises as `_agreed_manifest` does."""
    names = sorted(manifest.files)[ranks.rank :: ranks.world_size]
    fault, error = None, None
    try:
        for name in names:
            _compare(checkpoint.path / name, manifest)
    except CheckpointFaultError as found:
        fault = str(found)
    except OSError as found:
        error = str(found)
    for fault_there, error_there in told_by_all(ranks.background_group, (fault, error)):
        if error_there is not None:
            raise CheckpointError(f"{checkpoint.path}: the checkpoint cannot be read: {error_there}")
        if fault_there is not None:
            raise CheckpointFaultError(fault_there)


def _compare(file: Path, manifest: CheckpointManifest) -> None:
    expected = manifest.files[file.name]
    try:
        num_bytes = file.stat().st_size
        if num_bytes != expected.num_bytes:
            raise CheckpointFaultError(f"{file.name} has {num_bytes:,} bytes, and had {expected.num_bytes:,}")
        if CheckpointFile.of(file) != expected:
            raise CheckpointFaultError(f"{file.name} is damaged: its checksum differs")
    except FileNotFoundError:
        raise CheckpointFaultError(f"{file.name} is missing") from None
