"""Contents of downloads, readable in ranges of bytes: files, directories as tar archives, and logs that were pushed."""

import hashlib
import os
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath

from service.database import Database
from service.files.artifacts import FoundFile
from service.http.downloads import Content
from service.store.log_parts import StoredLog, StoredLogName

_END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)


class ContentGoneError(Exception):
    """Error of a content that is no longer as it was when its download began."""


class FileContent(Content):
    """A file as long as it was when it was found: a log may have grown since."""

    def __init__(self, file: FoundFile) -> None:
        self._file = file
        self.num_bytes = file.num_bytes
        self.tag = f'"{file.mtime_ns:x}-{file.num_bytes:x}"'

    def read(self, start: int, num_bytes: int) -> bytes:
        try:
            # A link that has taken the place of the file is not followed.
            descriptor = os.open(self._file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                opened.seek(start)
                content = opened.read(num_bytes)
        except OSError as error:
            raise ContentGoneError(f"{self._file.name} cannot be read: {error.strerror}") from None
        if len(content) != num_bytes:
            raise ContentGoneError(f"{self._file.name} has become shorter")
        return content


class StoredLogContent(Content):
    """A log in the database, from its first byte that is left to its end when it was found."""

    def __init__(self, log: StoredLogName, database: Database) -> None:
        self._log = log
        self._database = database
        self.num_bytes = log.num_bytes
        self.tag = f'"{log.attempt_id}-{log.stream}-{log.rank}-{log.start:x}-{log.end:x}"'

    def read(self, start: int, num_bytes: int) -> bytes:
        log = self._log
        with self._database.read() as session:
            stored = StoredLog(session, log.attempt_id, log.rank, log.stream, log.start, log.end)
            content = stored.read(log.start + start, num_bytes)
        if len(content) != num_bytes:
            raise ContentGoneError("the beginning of the log was removed meanwhile")
        return content


@dataclass(frozen=True)
class _Piece:
    """Consecutive bytes of an archive."""

    num_bytes: int
    read: Callable[[int, int], bytes]


class TarContent(Content):
    """Files as an uncompressed tar archive. Its layout follows from their names, sizes and times alone."""

    def __init__(self, files: Sequence[FoundFile], below: str) -> None:
        """Lay the archive out. below: name of the directory that all files are in; its last part stays in their names.

        Every number of bytes of an archive is one of whole blocks: headers, then a file with its padding.
        """
        pieces: list[_Piece] = []
        digest = hashlib.sha256()
        for file in files:
            header = _make_header(file, below)
            digest.update(header + f"{file.mtime_ns} ".encode())
            padding = bytes(-file.num_bytes % tarfile.BLOCKSIZE)
            pieces += [_hold(header), _Piece(file.num_bytes, FileContent(file).read), _hold(padding)]
        self._pieces = [*pieces, _hold(_END_OF_ARCHIVE)]
        self._ends = list(accumulate(piece.num_bytes for piece in self._pieces))
        self.num_bytes = self._ends[-1]
        self.tag = f'"{digest.hexdigest()[:40]}"'

    def read(self, start: int, num_bytes: int) -> bytes:
        parts: list[bytes] = []
        end = start + num_bytes
        number = bisect_right(self._ends, start)
        while start < end:
            piece, piece_end = self._pieces[number], self._ends[number]
            size = min(end, piece_end) - start
            if size > 0:
                parts.append(piece.read(start - (piece_end - piece.num_bytes), size))
                start += size
            number += 1
        return b"".join(parts)


def _make_header(file: FoundFile, below: str) -> bytes:
    info = tarfile.TarInfo(str(PurePosixPath(file.name).relative_to(PurePosixPath(below).parent)))
    info.size, info.mtime, info.mode = file.num_bytes, file.mtime_ns // 10**9, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _hold(content: bytes) -> _Piece:
    return _Piece(len(content), lambda start, num_bytes: content[start : start + num_bytes])
