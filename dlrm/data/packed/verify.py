"""Whether the files of a packed directory are what they were when they were written."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dlrm.data.errors import DataError
from dlrm.data.packed.layout import PackedMeta

_PIECE_BYTES = 1 << 20
_VALID = "a directory as `dlrm prepare` has written it: prepare the data again"


def verify(directory: Path, meta: PackedMeta, num_threads: int, tell: Callable[[float], None]) -> None:
    """Read every file and compare its size and sum. Raises DataError naming the first one that differs.

    tell: told from any thread which share of the bytes was read.
    """
    total = max(sum(file.num_bytes for file in meta.files.values()), 1)
    num_read = 0

    def check(name: str) -> None:
        nonlocal num_read
        noted, digest, num_bytes = meta.files[name], hashlib.sha256(), 0
        try:
            with (directory / name).open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
                    num_bytes += len(piece)
                    num_read += len(piece)
                    tell(min(num_read / total, 1.0))
        except OSError as error:
            raise DataError(f"not readable: {error.strerror}", directory / name, valid=_VALID) from None
        if (num_bytes, digest.hexdigest()) != (noted.num_bytes, noted.sha256):
            message = "is not what was written: its size or SHA-256 differs from meta.json"
            raise DataError(message, directory / name, valid=_VALID)

    with ThreadPoolExecutor(num_threads, thread_name_prefix="verify") as executor:
        list(executor.map(check, sorted(meta.files)))
