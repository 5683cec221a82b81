"""Reader of text files, plain or compressed, in runs of whole lines."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import GZIP, START_BYTES, TEXT, ZSTD, Kind, identify

BLOCK_BYTES = 16 << 20
"""Approximate bytes of decompressed text in a block."""
MAX_LINE_BYTES = 16 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMPRESSIONS = {GZIP: "gzip", ZSTD: "zstd"}
_TRUNCATED = ("Truncated compressed stream", r"Not a gzipped file (b'\x1f')")
_NEWLINE = 10


@dataclass(frozen=True)
class Lines:
    """A run of whole lines of one file."""

    data: bytes
    """Bytes of the lines, each ending in a newline."""
    first_number: int
    """Number of the first line in the file, counted from 1."""
    num_lines: int
    num_bytes: int
    """Bytes of the stored (possibly compressed) file that were read for these lines."""

    def drop_first(self, num_lines: int = 1) -> "Lines":
        """Return the run without its first lines."""
        start = 0
        for _ in range(num_lines):
            start = self.data.index(b"\n", start) + 1
        return Lines(self.data[start:], self.first_number + num_lines, self.num_lines - num_lines, self.num_bytes)


class _Stream(Protocol):
    def read(self, nbytes: int, /) -> bytes: ...


def read_lines(file: DataFile, block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """Yield all lines of `file`, in runs of about `block_bytes`; where they are cut depends on the file's bytes alone.

    Recognises gzip and zstd by their first bytes, adds a newline to a last line without one, and removes a byte order
    mark. Raises DataError if the file is not text, is empty, has lines that end in CR alone or a line longer than
    MAX_LINE_BYTES, and if a compressed stream is damaged.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(file.open())
        stream, compression = _open_text(raw, file, stack)
        start = _read(stream, len(_BYTE_ORDER_MARK), file, compression)
        rest, number, position = start.removeprefix(_BYTE_ORDER_MARK), 1, 0
        while piece := _read(stream, block_bytes, file, compression):
            if len(piece) < block_bytes:
                # The stream ends here: a last line without an end belongs to the lines before it.
                rest += piece
                break
            end = piece.rfind(b"\n") + 1
            if end:
                lines = _make_lines(b"".join((rest, memoryview(piece)[:end])), number, raw.tell() - position)
                rest, number, position = piece[end:], number + lines.num_lines, raw.tell()
                yield lines
            else:
                rest += piece
            if len(rest) > MAX_LINE_BYTES:
                _check_line_ends(rest, file, number)
                valid = f"lines of at most {MAX_LINE_BYTES:,} bytes"
                raise DataError("the line is too long", file.name, number, valid=valid)
        if rest:
            _check_line_ends(rest, file, number)
            yield _make_lines(rest.removesuffix(b"\n") + b"\n", number, raw.tell() - position)
        elif number == 1:
            raise DataError("the file is empty", file.name, valid="a file with at least one row")


class DoubtfulError(Exception):
    """Doubt whether a fast reader, which may be lenient, has found every line and every value as they stand."""


def get_first_line(lines: Lines) -> bytes:
    """Return the first line of a run, without its end."""
    return lines.data[: lines.data.index(b"\n")].removesuffix(b"\r")


def is_utf8(data: bytes) -> bool:
    """Whether `data` is text in UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def enumerate_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the numbers, from 0, and the lines of a run, without line ends.

    Yields one line at a time, since a run may hold millions.
    """
    return enumerate(line[:-1] for line in io.BytesIO(data))


Fault = tuple[str | None, tuple[str, str]]
"""Column at fault, None for the whole line; and the message with the valid values."""


def select_rows(data: bytes, bad: BadRows, keep_going: bool, find_fault: Callable[[bytes, int], Fault | None]) -> bytes:
    """Select the lines that are rows, with LF as line end, and record the others in `bad`.

    keep_going: otherwise stop at the first bad line, and count all lines from there on as bad. find_fault: called with
    a line, without its end, and its number in the run, from 0; returns None for a row.
    """
    kept: list[bytes] = []
    for row, whole_line in enumerate_lines(data):
        line = whole_line.removesuffix(b"\r")
        fault = find_fault(line, row)
        if fault is None:
            kept.append(line)
            continue
        bad.add_one(row, *fault)
        if not keep_going:
            bad.good[row:] = False
            break
    return b"".join(line + b"\n" for line in kept)


def _make_lines(data: bytes, number: int, num_bytes: int) -> Lines:
    num_lines = int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE))
    return Lines(data, number, num_lines, num_bytes)


def _check_line_ends(rest: bytes, file: DataFile, number: int) -> None:
    """Raise DataError if the file has no line end but CR. rest: bytes from line `number` on, without LF inside."""
    if number == 1 and b"\n" not in rest[:-1] and rest.strip(b"\r\n").count(b"\r"):
        valid = r"lines that end in LF or CR LF, as `tr '\r' '\n' < FILE` makes"
        raise DataError("the lines end in CR alone", file.name, valid=valid)


def _open_text(raw: BinaryIO, file: DataFile, stack: ExitStack) -> tuple[_Stream, str | None]:
    """Return the stream of decompressed text, and the name of the compression, None for plain text.

    Raises DataError if the file, or what is compressed in it, is not text.
    """
    kind, compression = _identify_next(raw, raw, file, None), None
    if kind in _COMPRESSIONS:
        compression = _COMPRESSIONS[kind]
        kind = _identify_next(_decompress(raw, compression, stack), raw, file, compression)
    if kind is not TEXT:
        inside = f", and that with {compression}" if kind in _COMPRESSIONS else f" compressed with {compression}"
        raise kind.make_error(file.name, inside if compression else "")
    return _decompress(raw, compression, stack), compression


def _identify_next(stream: _Stream, raw: BinaryIO, file: DataFile, compression: str | None) -> Kind:
    """Identify what `stream` holds, and go back to the beginning of `raw`."""
    kind = identify(_read(stream, START_BYTES, file, compression))
    raw.seek(0)
    return kind


def _decompress(raw: BinaryIO, compression: str | None, stack: ExitStack) -> _Stream:
    if compression == "gzip":
        # Unlike Arrow's reader, it accepts zeros after the end, which padding to whole tape or object blocks leaves.
        return stack.enter_context(gzip.GzipFile(fileobj=raw))
    if compression == "zstd":
        return stack.enter_context(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw


def _read(stream: _Stream, num_bytes: int, file: DataFile, compression: str | None) -> bytes:
    """Read the next `num_bytes`, fewer at the end. Raises DataError, and OSError if a remote file cannot be read."""
    try:
        return stream.read(num_bytes)
    except (OSError, EOFError, zlib.error) as error:
        # Only the text of the error shows whether Arrow failed to decompress or to read the file, and whether
        # gzip found a single byte where another member should begin.
        if isinstance(error, EOFError) or any(words in str(error) for words in _TRUNCATED):
            message, valid = f"the {compression} stream ends early: the file is truncated", "a complete file"
        elif isinstance(error, zlib.error | gzip.BadGzipFile) or "ZSTD decompress failed" in str(error):
            message, valid = f"the {compression} stream is damaged", "a file that decompresses"
        elif file.is_remote:
            raise OSError(f"{file.name}: reading failed: {error}") from error
        else:
            message, valid = f"not readable: {error}", "a file that this user may read"
        raise DataError(message, file.name, valid=valid) from None
