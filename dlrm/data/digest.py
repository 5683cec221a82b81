"""What names the content of a file."""

import hashlib
from collections.abc import Callable
from typing import BinaryIO

_PIECE_BYTES = 1 << 20


def sha256_of(file: BinaryIO, advance: Callable[[int], None]) -> str:
    """The SHA-256 of what is left to read; `advance` is told of the bytes of every piece."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
        advance(len(piece))
    return digest.hexdigest()
