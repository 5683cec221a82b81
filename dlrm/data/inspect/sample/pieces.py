"""Pieces of text files, from which rows are sampled, and the number of lines of the files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dlrm.data.inspect.sample.file_sample import spread_evenly
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import START_BYTES, TEXT, identify
from dlrm.data.raw.text.lines import Lines, read_lines

CountLines = Callable[[Lines], int]
"""Callback that counts the lines before the first row, such as a header, given the first lines of a file."""

_MAX_FILES = 64
_NUM_PIECES = 64
"""Number of positions, over all files, where rows are read."""
_MIN_PIECE_BYTES = 64 << 10
_MAX_BYTES = 256 << 20
"""Largest number of bytes of text of the pieces, and of plain files whose lines are counted exactly."""
_MAX_COMPRESSED_BYTES = 32 << 20
"""Largest number of bytes of compressed files that are decompressed to the end."""
_SPARE_SHARE = 1.05


@dataclass(frozen=True)
class TextPiece:
    """A run of whole lines of one file, without what comes before its rows."""

    file: str
    data: bytes
    """Bytes of the lines, each ending in a newline."""
    first_line: int | None
    """Number of the first line in the file, counted from 1; None if it is unknown."""


def read_pieces(
    files: Sequence[DataFile], max_rows: int, count_lines: CountLines = lambda _: 0, max_bytes: int = _MAX_BYTES
) -> tuple[list[TextPiece], int, bool]:
    """Read pieces with about `max_rows` lines in all, spread over the files.

    count_lines: counts the lines of a file before its first row. max_bytes: bound on the bytes of the pieces. Return
    the pieces, the number of rows of all files, and whether that is an estimate. Raises DataError if a file cannot
    be read.
    """
    chosen = [files[index] for index in spread_evenly(len(files), _MAX_FILES)]
    readers = [_FileReader(file, count_lines) for file in chosen]
    line_bytes = max(reader.line_bytes for reader in readers)
    wanted_bytes = min(int(max_rows * line_bytes * _SPARE_SHARE), max_bytes) // len(chosen)
    num_pieces = -(-_NUM_PIECES // len(chosen))
    total_bytes = sum(file.num_bytes for file in files)
    pieces = [piece for reader in readers for piece in reader.read(wanted_bytes, num_pieces, total_bytes)]
    num_lines = sum(reader.num_lines for reader in readers)
    is_estimate = len(chosen) < len(files) or any(reader.is_estimate for reader in readers)
    num_rows = round(num_lines * total_bytes / sum(file.num_bytes for file in chosen))
    return pieces, num_rows, is_estimate


class _FileReader:
    """Reader of pieces of one file; afterwards it knows how many lines the file has, or about how many."""

    def __init__(self, file: DataFile, count_lines: CountLines) -> None:
        self._file = file
        with file.open() as raw:
            self._is_compressed = identify(raw.read(START_BYTES)) is not TEXT
        first = next(read_lines(file, _MIN_PIECE_BYTES))
        self._num_before = count_lines(first)
        self.line_bytes = len(first.data) / first.num_lines
        """Mean bytes of the first lines of text."""
        self.num_lines = 0.0
        """Number of lines, without those before the first row."""
        self.is_estimate = False

    def read(self, wanted_bytes: int, num_pieces: int, total_bytes: int) -> Iterator[TextPiece]:
        """Yield pieces of some `wanted_bytes` in all. total_bytes: size of all files."""
        if self._is_compressed:
            yield from self._read_stream(wanted_bytes, _MAX_COMPRESSED_BYTES * self._file.num_bytes // total_bytes)
        elif self._file.num_bytes <= wanted_bytes:
            yield from self._read_stream(wanted_bytes, self._file.num_bytes)
        else:
            yield from self._read_positions(wanted_bytes, num_pieces, is_counted=total_bytes <= _MAX_BYTES)

    def _read_stream(self, wanted_bytes: int, max_stored_bytes: int) -> Iterator[TextPiece]:
        """Yield runs of lines that are spread over the first `max_stored_bytes` of the stored file."""
        stored_bytes = text_bytes = kept_bytes = 0
        stored_wanted = min(self._file.num_bytes, max(max_stored_bytes, 1))
        for lines in read_lines(self._file, _MIN_PIECE_BYTES):
            rows = lines.drop_first(self._num_before) if lines.first_number == 1 else lines
            self.num_lines += rows.num_lines
            stored_bytes += lines.num_bytes
            text_bytes += len(lines.data)
            # Keep the share of the text that makes the pieces of all that is read as long as wanted.
            expected_bytes = text_bytes * max(stored_wanted / max(stored_bytes, 1), 1.0)
            if kept_bytes <= text_bytes * min(wanted_bytes / expected_bytes, 1.0) and rows.num_lines:
                kept_bytes += len(lines.data)
                yield TextPiece(self._file.name, rows.data, rows.first_number)
            if stored_bytes >= stored_wanted and stored_wanted < self._file.num_bytes:
                self.is_estimate = True
                self.num_lines *= self._file.num_bytes / stored_bytes
                return

    def _read_positions(self, wanted_bytes: int, num_pieces: int, *, is_counted: bool) -> Iterator[TextPiece]:
        num_pieces = max(1, min(num_pieces, wanted_bytes // _MIN_PIECE_BYTES))
        piece_bytes = max(wanted_bytes // num_pieces, _MIN_PIECE_BYTES)
        num_read = num_bytes = 0
        with self._file.open() as raw:
            for position in range(num_pieces):
                raw.seek(position * (self._file.num_bytes - piece_bytes) // max(num_pieces - 1, 1))
                data = raw.read(piece_bytes)
                # The first line is incomplete, except in the first piece, where other lines may come before the rows.
                for _ in range(1 if position else self._num_before):
                    data = data[data.find(b"\n") + 1 :]
                data = data[: data.rfind(b"\n") + 1]
                num_read += data.count(b"\n")
                num_bytes += len(data)
                first_line = None if position else 1 + self._num_before
                if data:
                    yield TextPiece(self._file.name, data.removeprefix(b"\xef\xbb\xbf"), first_line)
            self.is_estimate = not is_counted
            self.num_lines = self._file.num_bytes * num_read / max(num_bytes, 1)
            if is_counted:
                raw.seek(0)
                counted = sum(block.count(b"\n") for block in iter(lambda: raw.read(_MIN_PIECE_BYTES), b""))
                raw.seek(-1, 2)
                self.num_lines = counted + (raw.read(1) != b"\n") - self._num_before
