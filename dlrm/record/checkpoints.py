"""The checkpoints of a run on disk: `checkpoints/step-<batches consumed>/`.

A checkpoint is valid once it has a file `COMPLETE`, which is written last and lists every other file: its first line is
JSON, its second line the checksum of the first.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.record.files import FileRecord, sync_directory, write_atomically

COMPLETE = "COMPLETE"
_NAME = re.compile(r"step-(\d{8,})")
_NAME_OF_ANY_LENGTH = re.compile(r"step-(\d+)")


class CheckpointManifest(BaseModel):
    """Content of the file `COMPLETE`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    step: int
    """Number of batches consumed."""
    num_steps: int
    """Number of batches of the whole run."""
    num_samples: int
    """Number of valid rows consumed."""
    time: float
    """Time at which the checkpoint was complete; seconds since the epoch."""
    world_size: int
    """Number of ranks that wrote the checkpoint; any number of ranks may resume from it."""
    identity: dict[str, Any]
    """Identity of the job, as `dlrm.config.make_identity` returns it."""
    data_checksum: str | None
    """Checksum of the prepared rows; null for a synthetic log."""
    files: dict[str, FileRecord]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files.values())

    def write(self, directory: Path) -> None:
        """Write the manifest, which makes the checkpoint in `directory` valid, also after a power cut."""
        content = self.model_dump_json().encode()
        sync_directory(directory)
        write_atomically(directory / COMPLETE, content + f"\n{_checksum(content)}\n".encode())
        sync_directory(directory)
        sync_directory(directory.parent)


class CheckpointFaultError(Exception):
    """Error of a directory that is not a whole checkpoint; the message says why."""


@dataclass(frozen=True)
class CheckpointDirectory:
    """A directory that is named like a checkpoint, whatever it contains."""

    path: Path
    step: int

    def read_manifest(self) -> CheckpointManifest:
        """Read the manifest.

        Raises CheckpointFaultError if the checkpoint is incomplete or does not fit its name, and OSError.
        """
        try:
            return self.parse_manifest((self.path / COMPLETE).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointFaultError(f"it is incomplete: there is no {COMPLETE}") from None

    def parse_manifest(self, text: bytes) -> CheckpointManifest:
        """Parse the content of `COMPLETE`, wherever it was read. Raises CheckpointFaultError as `read_manifest`."""
        content, _, checksum = text.partition(b"\n")
        if checksum != f"{_checksum(content)}\n".encode():
            raise CheckpointFaultError(f"{COMPLETE} is damaged, or was written by another program")
        try:
            manifest = CheckpointManifest.model_validate_json(content)
        except ValidationError:
            raise CheckpointFaultError(f"{COMPLETE} was written by another version of this program") from None
        if manifest.step != self.step:
            raise CheckpointFaultError(f"{COMPLETE} belongs to step {manifest.step}")
        return manifest


def get_checkpoint_step(path: Path) -> int | None:
    """Return the step in the name of a checkpoint's directory; None if it is not named like one."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def list_checkpoints(directory: Path) -> list[CheckpointDirectory]:
    """List all checkpoints in `directory`, complete or not, newest first; empty if the directory does not exist."""
    if not directory.is_dir():
        return []
    steps = ((path, get_checkpoint_step(path)) for path in directory.iterdir())
    checkpoints = [CheckpointDirectory(path, step) for path, step in steps if step is not None]
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step, reverse=True)


def iterate_complete(directory: Path) -> Iterator[tuple[CheckpointDirectory, CheckpointManifest]]:
    """Yield the complete checkpoints in `directory` with their manifests, newest first, without reading their files."""
    for checkpoint in list_checkpoints(directory):
        try:
            manifest = checkpoint.read_manifest()
        except (CheckpointFaultError, OSError):
            continue
        yield checkpoint, manifest


def find_newest_checkpoint(directory: Path) -> CheckpointDirectory | None:
    """Return the newest complete checkpoint, without reading its files; None if absent."""
    return next((checkpoint for checkpoint, _ in iterate_complete(directory)), None)


def find_checkpoint(directory: Path, name: str) -> CheckpointDirectory:
    """Find a complete checkpoint by the name that a user gives it, without reading its files.

    directory: the checkpoints of a run. name: `newest`, the name of a checkpoint such as `step-500`, with or without
    leading zeros, or the path of its directory. Raises CheckpointFaultError, which lists the existing checkpoints.
    """
    checkpoints = list_checkpoints(directory)
    names = ", ".join(checkpoint.path.name for checkpoint in checkpoints) or "a run that has one"
    if name == "newest":
        newest = find_newest_checkpoint(directory)
        if newest is None:
            raise CheckpointFaultError(f"{directory} has no complete checkpoint (valid: {names})")
        return newest
    match = _NAME_OF_ANY_LENGTH.fullmatch(Path(name).name)
    is_path = Path(name).name != name
    if is_path and match and Path(name).is_dir():
        return CheckpointDirectory(Path(name), int(match[1]))
    found = [checkpoint for checkpoint in checkpoints if match and checkpoint.step == int(match[1])]
    if is_path or not found:
        kind = "is not the directory of a checkpoint" if is_path else f"is no checkpoint in {directory}"
        raise CheckpointFaultError(f"{name} {kind} (valid: newest, {names}, or the path of one)")
    return found[0]


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
