"""A raw file on this machine or in an object store."""

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.data.raw.stores import StoreError, open_object

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
        """Open the file to read its raw bytes, seekable. Raises DataError if it cannot be read (any more)."""
        try:
            if not self.is_remote:
                return Path(self.name).open("rb")
            # Arrow's file has all methods of a raw stream, but not its type.
            raw = cast(io.RawIOBase, open_object(self.name))
            return io.BufferedReader(raw, _REMOTE_BUFFER_BYTES)
        except (OSError, StoreError) as error:
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
