"""Checksum of a file's content."""

import hashlib
from collections.abc import Callable
from typing import BinaryIO

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
