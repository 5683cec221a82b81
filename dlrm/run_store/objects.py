"""Objects of one run in a store: written, read, listed and removed, with a limit of time for every request."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from dlrm.data.raw.stores import StoreError, explain_refusal, open_store
from dlrm.record import FULL_DISK, FileRecord

CHUNK_BYTES = 8 * 2**20
"""Bytes that are read from a file or an object at once."""
ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


class RequestError(OSError):
    """Error of a request that may succeed later; the message names the object."""


class ContentError(RequestError):
    """Error of an object whose content is not what was written."""


@dataclass(frozen=True)
class RequestLimits:
    """Patience with a store that answers slowly, or not at all."""

    silent_seconds: float
    """Seconds without a byte after which a try of a request has failed."""
    num_tries: int
    """Number of tries of one request."""


FILE_LIMITS = RequestLimits(silent_seconds=15.0, num_tries=5)
"""Limits for files: a large one has many parts, and must not begin anew because one of them failed."""
QUICK_LIMITS = RequestLimits(silent_seconds=5.0, num_tries=2)
"""Limits for small objects that are needed at once, such as a lease."""


@dataclass(frozen=True)
class ObjectInfo:
    """Size of an object, and when it was written."""

    num_bytes: int
    mtime: float
    """Time in seconds since the epoch, by the clock of the store."""


class ObjectStore:
    """The objects below one URI, by their names relative to it, such as `checkpoints/step-00000055/COMPLETE`."""

    def __init__(self, uri: str, limits: RequestLimits = FILE_LIMITS) -> None:
        """Open the store of `uri`. Raises StoreError if that is no valid URI, or its store is not configured."""
        self.uri = uri.rstrip("/")
        # Checks the name and the credentials; its file system has the limits of reading data.
        _, self._root = open_store(self.uri)
        self._limits = limits
        self._system = _open_system(self.uri, limits)

    def put_file(self, path: Path, name: str, expected: FileRecord | None = None) -> None:
        """Write the file `path` to the object `name`, and read it back where `expected` is given.

        Raises ContentError if the file, or what was written, has another checksum than `expected`; RequestError; and
        OSError where the file cannot be read.
        """
        with (
            path.open("rb") as content,
            self._translate(name),
            self._system.open_output_stream(f"{self._root}/{name}") as stream,
        ):
            sent = _copy(content.read, stream.write)
        if expected is None:
            return
        if sent != expected:
            raise ContentError(f"{path} is damaged: its checksum differs")
        if self.read_checksum(name) != expected:
            raise ContentError(f"{self.uri}/{name} was not written as it was sent: its checksum differs")

    def put_bytes(self, name: str, content: bytes) -> None:
        """Write `content` to the object `name`. Raises RequestError."""
        with self._translate(name), self._system.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(content)

    def read_bytes(self, name: str) -> bytes | None:
        """Return the content of a small object; None if absent. Raises RequestError."""
        try:
            with self._translate(name), self._system.open_input_stream(f"{self._root}/{name}") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def read_checksum(self, name: str) -> FileRecord:
        """Read an object to its end, and return its size and SHA-256. Raises RequestError, FileNotFoundError."""
        with self._translate(name), self._system.open_input_stream(f"{self._root}/{name}") as stream:
            return _copy(stream.read, lambda _: None)

    def fetch_file(self, name: str, path: Path, expected: FileRecord | None = None) -> None:
        """Write the object `name` to the file `path`, which appears once it is whole.

        Raises ContentError if its checksum is not the expected one, RequestError, FileNotFoundError, and OSError
        if the file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                with self._translate(name):
                    stream = self._system.open_input_stream(f"{self._root}/{name}")
                with stream:
                    found = _copy(lambda size: self._read_chunk(stream, size, name), file.write)
                file.flush()
                os.fsync(file.fileno())
            if expected is not None and found != expected:
                raise ContentError(f"{self.uri}/{name} is damaged: its checksum differs")
            part.replace(path)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            raise OSError(error.errno, f"{error.strerror}; free space there", str(path.parent)) from None
        finally:
            part.unlink(missing_ok=True)

    def list_below(self, prefix: str) -> dict[str, ObjectInfo]:
        """List the objects below `prefix`, a name without a slash at its end, or "" for all. Raises RequestError."""
        below = f"{self._root}/{prefix}" if prefix else self._root
        selector = fs.FileSelector(below, recursive=True, allow_not_found=True)
        with self._translate(prefix):
            infos = self._system.get_file_info(selector)
        start = len(self._root) + 1
        return {
            info.path[start:]: ObjectInfo(info.size, (info.mtime_ns or 0) / 1e9)
            for info in infos
            if info.type == fs.FileType.File
        }

    def remove(self, name: str) -> None:
        """Remove an object, if there is one. Raises RequestError."""
        with suppress(FileNotFoundError), self._translate(name):
            self._system.delete_file(f"{self._root}/{name}")

    def remove_below(self, prefix: str) -> None:
        """Remove all objects below `prefix`. Raises RequestError."""
        with suppress(FileNotFoundError), self._translate(prefix):
            self._system.delete_dir(f"{self._root}/{prefix}")

    def has_bucket(self) -> bool:
        """Whether the bucket exists. Raises RequestError."""
        bucket = self._root.partition("/")[0]
        with self._translate(""):
            return self._system.get_file_info(bucket).type != fs.FileType.NotFound

    def _read_chunk(self, stream: pa.NativeFile, num_bytes: int, name: str) -> bytes:
        with self._translate(name):
            return stream.read(num_bytes)

    @contextmanager
    def _translate(self, name: str) -> Iterator[None]:
        """Turn errors of the store into RequestError and StoreError; FileNotFoundError stays."""
        try:
            yield
        except (FileNotFoundError, RequestError):
            raise
        except (OSError, pa.ArrowException) as error:
            where = f"{self.uri}/{name}" if name else self.uri
            if (refusal := explain_refusal(error)) is not None:
                valid = "a bucket that exists, and credentials that may read, write, list and remove there"
                raise StoreError(f"{where}: {refusal}", valid) from None
            raise RequestError(f"{where}: {' '.join(str(error).split())[:400]}") from None


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> FileRecord:
    """Write what `read` returns, chunk by chunk, to its end, and return its size and SHA-256."""
    digest, num_bytes = hashlib.sha256(), 0
    while chunk := read(CHUNK_BYTES):
        digest.update(chunk)
        num_bytes += len(chunk)
        write(chunk)
    return FileRecord(num_bytes=num_bytes, sha256=digest.hexdigest())


def _open_system(uri: str, limits: RequestLimits) -> fs.FileSystem:
    scheme, _, path = uri.partition("://")
    if scheme == "gs":
        # Google's client repeats by itself, within one limit of time for all tries.
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=limits.silent_seconds * limits.num_tries))
    endpoint = next((os.environ[name] for name in ENDPOINT_VARIABLES if os.environ.get(name)), None)
    region = next((os.environ[name] for name in REGION_VARIABLES if os.environ.get(name)), None)
    endpoint_scheme, _, address = endpoint.rpartition("://") if endpoint else ("", "", None)
    if region is None and endpoint is None:
        region = _find_region(path.partition("/")[0])
    return fs.S3FileSystem(
        region=region or "us-east-1",
        scheme=endpoint_scheme or "https",
        endpoint_override=address,
        connect_timeout=limits.silent_seconds,
        request_timeout=limits.silent_seconds,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=limits.num_tries),
        # Small objects then take one request instead of three.
        allow_delayed_open=True,
    )


def _find_region(bucket: str) -> str | None:
    """Return the region of a bucket; None if that is not known now."""
    try:
        return fs.resolve_s3_region(bucket)
    except (OSError, pa.ArrowException):
        return None
