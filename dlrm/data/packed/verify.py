"""Verification that the files of a packed directory have not changed since they were written."""

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from dlrm.data.errors import DataError
from dlrm.data.packed.layout import PackedMeta

_PIECE_BYTES = 1 << 20


def compute_sha256(file: BinaryIO, advance: Callable[[int], None]) -> str:
    """Compute the SHA-256 of `file` from its current position, in hex.

    advance: called with the number of bytes of each piece that was read.
    """
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
        advance(len(piece))
    return digest.hexdigest()


_VALID = "a directory as `dlrm prepare` has written it: prepare the data again"


def verify(directory: Path, meta: PackedMeta, num_threads: int, on_progress: Callable[[float], None]) -> None:
    """Read every file and compare its SHA-256. Raises DataError for the first file, by name, that differs.

    on_progress: called with the share of the bytes read so far, 0 to 1, by one thread at a time.
    """
    total = max(sum(file.num_bytes for file in meta.files.values()), 1)
    num_read = 0
    lock = threading.Lock()

    def advance(num_bytes: int) -> None:
        nonlocal num_read
        with lock:
            num_read += num_bytes
            on_progress(min(num_read / total, 1.0))

    def check(name: str) -> None:
        try:
            with (directory / name).open("rb") as file:
                found = compute_sha256(file, advance)
        except OSError as error:
            raise DataError(f"not readable: {error.strerror}", directory / name, valid=_VALID) from None
        if found != meta.files[name].sha256:
            message = "has changed since it was written: its SHA-256 differs from meta.json"
            raise DataError(message, directory / name, valid=_VALID)

    with ThreadPoolExecutor(num_threads, thread_name_prefix="verify") as executor:
        list(executor.map(check, sorted(meta.files)))
