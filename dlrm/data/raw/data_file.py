"""One raw file, on this machine or in a store of objects."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from dlrm.config.patterns import is_remote
from dlrm.data.errors import DataError
from dlrm.data.raw.stores import StoreError, open_object

_REMOTE_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class DataFile:
    """A raw file as it was found."""

    name: str
    """Its real path, or s3://bucket/key or gs://bucket/key."""
    num_bytes: int
    modified_ns: int
    """When it was last changed, in nanoseconds since 1970."""
    inode: int | None = None
    """None for objects of a store."""
    changed_ns: int | None = None
    """When it was last changed in any way, which no program can set back; likewise."""

    @classmethod
    def of_path(cls, path: Path) -> "DataFile":
        """The file of this real path, as it is now. Raises OSError."""
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.name)

    def open(self) -> BinaryIO:
        """Its raw bytes, seekable. Raises DataError where it may not be read (any more)."""
        try:
            if not self.is_remote:
                return Path(self.name).open("rb")
            # Arrow's file has all that a raw stream needs, but not its type.
            raw = cast(io.RawIOBase, open_object(self.name))
            return io.BufferedReader(raw, _REMOTE_BUFFER_BYTES)
        except (OSError, StoreError) as error:
            raise DataError(f"not readable: {error}", self.name, valid="a file that may be read") from None

    def identity(self) -> dict[str, str | int | None]:
        """What tells this file from a changed one, fit for JSON."""
        return {
            "name": self.name,
            "num_bytes": self.num_bytes,
            "modified_ns": self.modified_ns,
            "inode": self.inode,
            "changed_ns": self.changed_ns,
        }
