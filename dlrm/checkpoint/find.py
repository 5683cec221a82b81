"""Finds the checkpoint to resume from: the newest one whose files all match their checksums."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dlrm.checkpoint import CheckpointError
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.sharing import DirectoryRanks
from dlrm.record import CheckpointDirectory, CheckpointFaultError, CheckpointManifest, FileRecord, list_checkpoints
from dlrm.reporting.reporter import Reporter
from sharding.comm.collectives import all_gather_object, run_on_all_ranks
from sharding.comm.process_groups import Ranks

Result = TypeVar("Result")

NUM_TRIES = 3
RETRY_SECONDS = 1.0
"""Seconds between two tries to read a file, for example on a file server that is briefly unavailable."""


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint whose files all match their checksums."""

    path: Path
    manifest: CheckpointManifest


def find_verified_checkpoint(
    directory: Path, identity: RunIdentity, ranks: Ranks, reporter: Reporter, sharers: DirectoryRanks | None = None
) -> VerifiedCheckpoint | None:
    """Return the newest intact checkpoint in `directory`; None if absent. Collective.

    sharers: ranks that have the same `directory`; None for all. In other directories it must be intact too.
    Checkpoints that are damaged or cannot be read are skipped with a warning. Raises DataError if one belongs to
    another run than `identity`, and CheckpointError if one cannot be read and no other is intact, since it may be
    readable at another time.
    """
    read_error: OSError | None = None
    candidates = list_checkpoints(directory) if ranks.rank == 0 else []
    for checkpoint in all_gather_object(ranks.background_group, candidates)[0]:
        try:
            manifest = read_common_manifest(checkpoint, ranks)
            identity.check(checkpoint, manifest)
            size = f"{manifest.num_bytes / 1e6:,.0f} MB"
            reporter.progress("loading", f"checking the checkpoint of step {checkpoint.step:,} ({size})")
            verify_checkpoint(checkpoint, manifest, ranks, sharers)
        except (CheckpointFaultError, OSError) as fault:
            message = f"{checkpoint.path} is skipped: {fault}"
            reporter.event("checkpoint_passed_over", message, step=checkpoint.step)
            read_error = fault if isinstance(fault, OSError) else read_error
            continue
        return VerifiedCheckpoint(checkpoint.path, manifest)
    if read_error is not None:
        # A run that starts again would in the end remove this checkpoint, which may be intact.
        raise CheckpointError(f"no checkpoint in {directory} can be read: {read_error}")
    return None


def read_verified_manifest(checkpoint: CheckpointDirectory, ranks: Ranks) -> CheckpointManifest:
    """Read the manifest of `checkpoint` and compare every file with it. Collective. Raises as `verify_checkpoint`."""
    manifest = _run_with_retries(ranks, checkpoint.read_manifest)[0]
    verify_checkpoint(checkpoint, manifest, ranks)
    return manifest


def verify_checkpoint(
    checkpoint: CheckpointDirectory,
    manifest: CheckpointManifest,
    ranks: Ranks,
    sharers: DirectoryRanks | None = None,
    *,
    is_rank0_enough: bool = False,
) -> None:
    """Compare every file with the manifest, a share of the files on each rank. Collective.

    sharers: ranks that have the same directory; None for all. is_rank0_enough: whether directories other than rank 0's
    may lack files. Raises, on all ranks, CheckpointFaultError if a file is damaged or missing, and OSError if one
    cannot be read for another reason.
    """
    sharers = sharers or DirectoryRanks.of_all(ranks.rank, ranks.world_size)
    names = sharers.share(sorted(manifest.files)) if sharers.first == 0 or not is_rank0_enough else []

    def verify_files() -> None:
        for name in names:
            verify_file(checkpoint.path / name, manifest)

    _run_with_retries(ranks, verify_files)


def read_common_manifest(checkpoint: CheckpointDirectory, ranks: Ranks) -> CheckpointManifest:
    """Read the manifest of `checkpoint` on all ranks. Collective.

    Raises CheckpointFaultError, also if they differ, and OSError.
    """
    manifests = _run_with_retries(ranks, checkpoint.read_manifest)
    if any(manifest != manifests[0] for manifest in manifests):
        raise CheckpointFaultError("the nodes have different ones of this step")
    return manifests[0]


def _run_with_retries(ranks: Ranks, work: Callable[[], Result]) -> list[Result]:
    """Return the results of `work` by rank, or raise the first fault or error on all ranks. Retries
    OSError."""

    def retry() -> Result:
        for _ in range(NUM_TRIES - 1):
            try:
                return work()
            except OSError:
                time.sleep(RETRY_SECONDS)
        return work()

    return run_on_all_ranks(ranks.background_group, retry, (CheckpointFaultError, OSError))


def verify_file(file: Path, manifest: CheckpointManifest) -> None:
    """Compare one file with the manifest. Raises CheckpointFaultError if it is damaged or missing, and OSError."""
    expected = manifest.files[file.name]
    try:
        num_bytes = file.stat().st_size
        if num_bytes != expected.num_bytes:
            raise CheckpointFaultError(f"{file.name} has {num_bytes:,} bytes instead of {expected.num_bytes:,}")
        if FileRecord.from_file(file) != expected:
            raise CheckpointFaultError(f"{file.name} is damaged: its checksum differs")
    except FileNotFoundError:
        raise CheckpointFaultError(f"{file.name} is missing") from None
