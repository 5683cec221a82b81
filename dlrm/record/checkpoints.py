"""The checkpoints of a run, as they lie on disk: `checkpoints/step-<batches consumed>/`.

A checkpoint counts once it has a `COMPLETE`, which is written last and lists every other file: a line of JSON, and a
line with the checksum of the first.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.record.files import sync_directory, write_atomically

COMPLETE = "COMPLETE"
_NAME = re.compile(r"step-(\d{8,})")


class CheckpointFile(BaseModel):
    """One file of a checkpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path) -> "CheckpointFile":
        """Raises OSError."""
        with file.open("rb") as opened:
            return cls(num_bytes=file.stat().st_size, sha256=hashlib.file_digest(opened, "sha256").hexdigest())


class CheckpointManifest(BaseModel):
    """What `COMPLETE` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    step: int
    """Batches consumed."""
    num_steps: int
    """Batches of the whole run."""
    num_samples: int
    """Valid rows consumed."""
    time: float
    """When it was complete; seconds since the epoch."""
    world_size: int
    """Ranks that wrote it; any number may go on from it."""
    identity: dict[str, Any]
    """`dlrm.config.identity_of` the job."""
    data_checksum: str | None
    """Of the prepared rows; null for a synthetic log."""
    files: dict[str, CheckpointFile]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files.values())

    def write(self, directory: Path) -> None:
        """Make the checkpoint in `directory` count; it does so after a power cut, too."""
        said = self.model_dump_json().encode()
        sync_directory(directory)
        write_atomically(directory / COMPLETE, said + f"\n{_checksum(said)}\n".encode())
        sync_directory(directory)
        sync_directory(directory.parent)


class CheckpointFaultError(Exception):
    """A directory that is no whole checkpoint; the message says why."""


@dataclass(frozen=True)
class CheckpointDirectory:
    """A directory with the name of a checkpoint, whatever is in it."""

    path: Path
    step: int

    def manifest(self) -> CheckpointManifest:
        """Raises CheckpointFaultError where it is not complete, or not what its name says; OSError."""
        try:
            said, _, checksum = (self.path / COMPLETE).read_bytes().partition(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            raise CheckpointFaultError(f"it was not finished: there is no {COMPLETE}") from None
        if checksum != f"{_checksum(said)}\n".encode():
            raise CheckpointFaultError(f"{COMPLETE} is damaged, or of another program")
        try:
            manifest = CheckpointManifest.model_validate_json(said)
        except ValidationError:
            raise CheckpointFaultError(f"{COMPLETE} is of another version of this program") from None
        if manifest.step != self.step:
            raise CheckpointFaultError(f"{COMPLETE} is of step {manifest.step}")
        return manifest


def checkpoints_in(directory: Path) -> list[CheckpointDirectory]:
    """All in `directory`, whole or not, the newest first; none where it does not exist."""
    if not directory.is_dir():
        return []
    matches = ((path, _NAME.fullmatch(path.name)) for path in directory.iterdir())
    found = [CheckpointDirectory(path, int(match[1])) for path, match in matches if match]
    return sorted(found, key=lambda checkpoint: checkpoint.step, reverse=True)


def newest_checkpoint(directory: Path) -> CheckpointDirectory | None:
    """The newest that is complete, its files unseen; None where there is none."""
    for checkpoint in checkpoints_in(directory):
        try:
            checkpoint.manifest()
        except (CheckpointFaultError, OSError):
            continue
        return checkpoint
    return None


def _checksum(said: bytes) -> str:
    return hashlib.sha256(said).hexdigest()
