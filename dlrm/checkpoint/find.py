"""Finds the checkpoint to resume from: the newest one whose files all match their checksums."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dlrm.checkpoint.errors import CheckpointError
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.record import CheckpointDirectory, CheckpointFaultError, CheckpointFile, CheckpointManifest, checkpoints_in
from dlrm.reporting.reporter import Reporter
from sharding.comm.collectives import all_gather_object, run_on_all_ranks
from sharding.comm.process_groups import Ranks

Result = TypeVar("Result")

NUM_TRIES = 3
RETRY_SECONDS = 1.0
"""Seconds between two tries to read a file, for example on a file server that is away for a moment."""


@dataclass(frozen=True)
class SoundCheckpoint:
    """A checkpoint whose files were all compared with their checksums."""

    path: Path
    manifest: CheckpointManifest


def newest_sound(directory: Path, label: RunIdentity, ranks: Ranks, reporter: Reporter) -> SoundCheckpoint | None:
    """Return the newest whole checkpoint in `directory`; None where there is none. Collective.

    Checkpoints that are damaged or cannot be read are passed over with a warning. Raises DataError where one has other
    settings than `label`, and CheckpointError where one cannot be read and no other is whole, since it may be readable
    at another time.
    """
    unread: OSError | None = None
    found = checkpoints_in(directory) if ranks.rank == 0 else []
    for checkpoint in all_gather_object(ranks.background_group, found)[0]:
        try:
            manifest = _agreed(ranks, checkpoint.manifest)[0]
            label.check(checkpoint, manifest)
            size = f"{manifest.num_bytes / 1e6:,.0f} MB"
            reporter.progress("loading", f"checking the checkpoint of step {checkpoint.step:,} ({size})")
            verify(checkpoint, manifest, ranks)
        except (CheckpointFaultError, OSError) as fault:
            message = f"{checkpoint.path} is passed over: {fault}"
            reporter.event("checkpoint_passed_over", message, step=checkpoint.step)
            unread = fault if isinstance(fault, OSError) else unread
            continue
        return SoundCheckpoint(checkpoint.path, manifest)
    if unread is not None:
        # A run that starts anew would in the end remove this checkpoint, which may be whole.
        raise CheckpointError(f"no checkpoint in {directory} can be read: {unread}")
    return None


def verify(checkpoint: CheckpointDirectory, manifest: CheckpointManifest, ranks: Ranks) -> None:
    """Compare every file with the manifest, a share of the files on each rank. Collective.

    Raises, on all ranks, CheckpointFaultError where a file is damaged or missing, and OSError where one cannot be read
    for another reason.
    """
    names = sorted(manifest.files)[ranks.rank :: ranks.world_size]

    def compare() -> None:
        for name in names:
            _compare(checkpoint.path / name, manifest)

    _agreed(ranks, compare)


def _agreed(ranks: Ranks, look: Callable[[], Result]) -> list[Result]:
    """Return what `look` returned on each rank, by rank, or raise the first fault or error on all ranks. Retries
    OSError."""

    def patiently() -> Result:
        for _ in range(NUM_TRIES - 1):
            try:
                return look()
            except OSError:
                time.sleep(RETRY_SECONDS)
        return look()

    return run_on_all_ranks(ranks.background_group, patiently, (CheckpointFaultError, OSError))


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
