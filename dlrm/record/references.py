"""References of a run directory: to the prepared data, `data.json`, and to the bucket of the run, `run-store.json`."""

import hashlib
import secrets
from pathlib import Path

from pydantic import Field, ValidationError

from dlrm.record.checkpoints import COMPLETE, CheckpointDirectory
from dlrm.record.directory import RunDirectory
from dlrm.record.files import Record, write_atomically

RUN_STORE_VARIABLE = "DLRM_RUN_STORE"
"""Environment variable with the URI below which runs are kept, if no option names it."""


class PreparedData(Record):
    """A directory of packed rows, and the checksum by which it differs from one with other rows."""

    directory: str
    """Absolute path of the directory."""
    checksum: str
    """Checksum of the rows."""
    tables: dict[str, str] = Field(default={})
    """Versions of the tables of Delta Lake and Iceberg that were read, by their directories, or by the named files of
    their logs."""


class RunStoreRecord(Record):
    """Place of a run in a store of objects, such as s3://bucket/runs."""

    uri: str
    """URI below which runs are kept."""
    run_id: str
    """Name of the run there."""
    node: int | None = None
    """Number of the node that alone works in this run directory; None if all nodes do."""
    directory_id: str = Field(default_factory=lambda: secrets.token_hex(8))
    """Random name of this run directory, by which nodes find out whether they share it."""

    @property
    def run_uri(self) -> str:
        """URI of the run itself."""
        return f"{self.uri}/{self.run_id}"

    @classmethod
    def read(cls, path: Path) -> "RunStoreRecord | None":
        """Read the reference that `write` wrote to `path`; None if there is no such file.

        Raises OSError, also if it is damaged.
        """
        try:
            return super().read(path)
        except ValidationError:
            remedy = "resume the run from its bucket in another directory, or restore this file"
            raise OSError(f"{path} is damaged: {remedy}") from None


def checksum_file(path: Path) -> str:
    """Return the SHA-256 of a small file. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_uploaded(directory: RunDirectory, checkpoint: CheckpointDirectory) -> bool:
    """Whether a checkpoint of `directory`, as it is now, is marked as being in the bucket."""
    try:
        mark = directory.uploaded_mark(checkpoint.step).read_text()
        return mark == checksum_file(checkpoint.path / COMPLETE)
    except OSError:
        return False


def mark_uploaded(directory: RunDirectory, step: int, checksum: str) -> None:
    """Mark the checkpoint whose `COMPLETE` has `checksum` as being in the bucket. Raises OSError."""
    mark = directory.uploaded_mark(step)
    mark.parent.mkdir(exist_ok=True)
    write_atomically(mark, checksum)
