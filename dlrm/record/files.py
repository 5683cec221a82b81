"""Files that are either written whole or not at all, and the records in them."""

import errno
import hashlib
import os
import secrets
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk or quota; there may be free space later."""


def write_atomically(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` so that no reader ever sees a part of it, not even after a crash."""
    data = content.encode() if isinstance(content, str) else content
    # The process's number alone is not enough: processes of several machines may share the directory.
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_first(path: Path, content: str) -> None:
    """Write `content` to `path` as `write_atomically` does, unless it exists: of many writers one is the first."""
    own = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}")
    write_atomically(own, content)
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()


def remove_partial_files(directory: Path) -> None:
    """Remove what processes that were killed in `write_atomically` have left in `directory`."""
    for part in directory.glob(".*.part"):
        part.unlink()


def sync_tree(directory: Path) -> None:
    """Flush `directory` and every file and directory below it to disk."""
    for path in directory.rglob("*"):
        if path.is_dir():
            sync_directory(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Flush the names in `directory` to disk, so that a renamed file has its new name after a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_synced(part: Path, path: Path) -> None:
    """Rename a file that is whole, so that one with the new name is whole even after a power cut."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(path)
    sync_directory(path.parent)


class Record(BaseModel):
    """Content of a file or a message, as JSON. Unknown fields are errors, and so are numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def write(self, path: Path) -> None:
        """Write the record to `path`. Raises OSError."""
        write_atomically(path, self.model_dump_json(indent=1))

    def write_first(self, path: Path) -> None:
        """Write the record to `path`, unless there is one: of many writers the first one counts. Raises OSError."""
        write_first(path, self.model_dump_json(indent=1))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record at `path`; None if there is no such file. Raises OSError, and ValueError if it is damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None


class FileRecord(Record):
    """Size and checksum of a file, by which a copy is compared with it."""

    num_bytes: int
    sha256: str

    @classmethod
    def from_file(cls, file: Path) -> Self:
        """Return the size and the SHA-256 of `file`. Raises OSError."""
        with file.open("rb") as content:
            return cls(num_bytes=file.stat().st_size, sha256=hashlib.file_digest(content, "sha256").hexdigest())


class OpenRecord(BaseModel):
    """Content of a file or a message, as JSON. Unknown fields, as later versions may have, are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)
