"""A raw file on this machine or in an object store, and the data roots that it must be in."""

import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.data.raw.stores import StoreError, explain_refusal, open_object, open_store

_REMOTE_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class DataFile:
    """A raw file, with its state when it was found."""

    name: str
    """Real path, or s3://bucket/key or gs://bucket/key."""
    num_bytes: int
    modified_ns: int
    """Modification time (mtime), in nanoseconds since 1970."""
    inode: int | None = None
    """Inode number; None for objects of a store."""
    changed_ns: int | None = None
    """Time of the last change of content or metadata (ctime), in nanoseconds since 1970; None for objects of a store.
    Unlike mtime, programs cannot set it back."""
    path_values: Mapping[str, str | None] = field(default_factory=dict[str, str | None], compare=False)
    """Values of columns that the names of its directories state, such as country=US; None: the value is missing."""

    @classmethod
    def from_path(cls, path: Path) -> "DataFile":
        """Describe the file at `path`, a real path, as it is now. Raises OSError."""
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.name)

    def open(self) -> BinaryIO:
        """Open the file to read its raw bytes, seekable.

        Raises DataError if it cannot be read (any more), or OSError if its store does not answer.
        """
        try:
            if not self.is_remote:
                return Path(self.name).open("rb")
            # Arrow's file has all methods of a raw stream, but not its type.
            raw = cast(io.RawIOBase, open_object(self.name))
            return io.BufferedReader(raw, _REMOTE_BUFFER_BYTES)
        except (OSError, StoreError) as error:
            if self.is_remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                raise find_refusal(self.name, error) or OSError(f"{self.name}: reading failed: {error}") from error
            raise DataError(f"not readable: {error}", self.name, valid="a file that this user may read") from None

    def get_identity(self) -> dict[str, str | int | None]:
        """Return the properties that differ between this file and a changed version of it, ready for JSON."""
        return {
            "name": self.name,
            "num_bytes": self.num_bytes,
            "modified_ns": self.modified_ns,
            "inode": self.inode,
            "changed_ns": self.changed_ns,
        }

    def get_context(self, names: Collection[str]) -> list[Any]:
        """Return what decides, beside the bytes, which rows are read: ready for JSON, empty if only the bytes do.

        names: the columns that are read.
        """
        return [{name: value} for name, value in self.path_values.items() if name in names]


class RefusedError(DataError):
    """Error of an object that its store refuses: rights may change while the object stays as it is."""


def find_refusal(name: str, error: OSError) -> RefusedError | None:
    """Find out whether an object could not be read since its store refuses it; None if it may answer later."""
    if (refusal := explain_refusal(error)) is None:
        return None
    return RefusedError(f"not readable: {refusal}", name, valid="an object that this user may read")


@contextmanager
def name_read_errors(file: DataFile, kind: str) -> Iterator[None]:
    """Raise DataError if Arrow finds inside the `with` that a file is damaged, or OSError if a store does not answer.

    kind: format of the file, for the message.
    """
    try:
        yield
    # Damaged lengths ask for any amount of memory, and a damaged footer may hold names that are not UTF-8.
    except (OSError, MemoryError, pa.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and file.is_remote:
            raise OSError(f"{file.name}: reading failed: {error}") from error
        cause = str(error).strip().partition("\n")[0] or "it is damaged"
        raise DataError(f"not readable as {kind}: {cause}", file.name, valid=f"a complete {kind} file") from None


def find_object(name: str) -> DataFile | None:
    """Find the object of that name as it is now; None if absent. Raises StoreError and OSError."""
    store, path = open_store(name)
    info = store.get_file_info(path)
    return _make_data_file(name.partition("://")[0], info) if info.type == fs.FileType.File else None


def list_objects(name: str) -> list[DataFile]:
    """List the object of that name, or the objects below it, hidden ones too. Raises StoreError and OSError."""
    store, path = open_store(name)
    scheme = name.partition("://")[0]
    info = store.get_file_info(path)
    if info.type == fs.FileType.File:
        return [_make_data_file(scheme, info)]
    if info.type == fs.FileType.NotFound:
        return []
    below = store.get_file_info(fs.FileSelector(path, recursive=True))
    return [_make_data_file(scheme, info) for info in below if info.type == fs.FileType.File]


def _make_data_file(scheme: str, info: fs.FileInfo) -> DataFile:
    return DataFile(f"{scheme}://{info.path}", info.size, info.mtime_ns or 0)


_STATED = re.compile(r"([^\W\d][^=]*)=(.*)", re.DOTALL)
MISSING = "__HIVE_DEFAULT_PARTITION__"
"""Value that stands for a missing one."""


def find_path_values(paths: Iterable[str]) -> dict[str, str | None]:
    """Find the values that the directories of some paths of one file state, by name; None: the value is missing.

    Names and values are percent-encoded in paths. If two directories state a value, the last one counts. All
    directories count, whichever of them a user names, so that the same file always has the same columns.
    """
    found: dict[str, str | None] = {}
    for path in paths:
        if "=" not in path:
            continue
        for part in path.split("/")[:-1]:
            if stated := _STATED.fullmatch(part):
                name, value = (_decode(text) for text in stated.groups())
                found[name] = None if value in ("", MISSING) else value
    return found


def _decode(text: str) -> str:
    # Names of directories need not be UTF-8.
    return unquote(os.fsencode(text).decode(errors="replace"))
