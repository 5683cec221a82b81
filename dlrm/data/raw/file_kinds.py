"""Kinds of files, by their first bytes, whatever their names; kinds that are not read have words for messages."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile

START_BYTES = 512
"""Number of first bytes that identify the kind of a file."""
VALID = "UTF-8 text, plain or compressed with gzip or zstd, Parquet or Arrow IPC"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    words: str
    """Description for messages, such as `is an ORC file`."""
    format: str | None = None
    """Value of `data.format` that reads it; `text` for all formats of text; None if it is not read."""
    valid: str = VALID
    """Valid input in place of a file that is not read."""

    def make_error(self, file: str, inside: str = "") -> DataError:
        """Make the error for a file that a reader of another format was given. inside: how the file is compressed."""
        valid = self.valid
        if inside:
            valid = _UNCOMPRESSED
        elif self.format is not None:
            valid = 'format "csv" or "jsonl"' if self.format == "text" else f'format "{self.format}"'
        return DataError(self.words + inside, file, valid=valid)


TEXT = Kind("is text", "text")
JSON_LINES = Kind("is JSON Lines", "jsonl")
_JSON_ARRAYS = Kind("has a JSON array on each line", valid="JSON Lines with one object per line, or CSV")
_BROKEN_JSON = Kind(
    "begins like JSON Lines, but has no whole object on a line",
    valid="one JSON object per line, with names and texts in double quotes, and nothing before or after it",
)
_JSON_START = re.compile(rb"[\s\x1e]*\{\s*[\"']")
PARQUET = Kind("is a Parquet file", "parquet")
ARROW = Kind("is an Arrow IPC file", "arrow")
GZIP, ZSTD = Kind("is compressed with gzip", "text"), Kind("is compressed with zstd", "text")
ARROW_STREAM = Kind("is an Arrow IPC stream", "arrow")

_UNCOMPRESSED = "a plain file, or text compressed with gzip or zstd"
_UTF_8 = "UTF-8 text, as `iconv -f {} -t utf-8 FILE` makes"
_COMPLETE = "a complete copy of the file"
_MAGIC: list[tuple[int, bytes, Kind]] = [
    (0, b"PAR1", PARQUET),
    (0, b"PARE", Kind("is an encrypted Parquet file", valid="a Parquet file without encryption")),
    (0, b"ARROW1", ARROW),
    (0, b"FEA1", Kind("is a Feather file of version 1", valid="Feather of version 2, which is Arrow IPC")),
    (0, b"ORC", Kind("is an ORC file")),
    (0, b"Obj\x01", Kind("is an Avro file")),
    (0, b"SEQ\x06", Kind("is a sequence file of Hadoop")),
    (0, b"RCF\x01", Kind("is an RCFile of Hive")),
    (0, b"\x93NUMPY", Kind("is an array of numpy (.npy)")),
    (0, b"\x89HDF\r\n\x1a\n", Kind("is an HDF5 file")),
    (0, b"SQLite format 3\0", Kind("is an SQLite database")),
    (8, b"DUCK", Kind("is a DuckDB database")),
    (0, b"RDX", Kind("is a data file of R")),
    (0, b"X\n\0\0\0", Kind("is a data file of R (.rds)")),
    (0, b"<stata_dta>", Kind("is a data file of Stata")),
    (0, b"$FL2", Kind("is a data file of SPSS")),
    (0, bytes(12) + b"\xc2\xea\x81\x60", Kind("is a data file of SAS")),
    (0, b"MATLAB 5.0 MAT-file", Kind("is a data file of MATLAB")),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Kind("is an Excel workbook or another document of Office")),
    (0, b"PK\x05\x06", Kind("is an empty zip archive", valid=_UNCOMPRESSED)),
    (0, b"PK\x03\x04", Kind("is a zip archive", valid=_UNCOMPRESSED)),
    (0, b"7z\xbc\xaf\x27\x1c", Kind("is a 7z archive", valid=_UNCOMPRESSED)),
    (0, b"Rar!\x1a\x07", Kind("is a rar archive", valid=_UNCOMPRESSED)),
    (257, b"ustar", Kind("is a tar archive", valid="the files in it")),
    (0, b"\x1f\x8b", GZIP),
    (0, b"\x28\xb5\x2f\xfd", ZSTD),
    # Skippable frames of zstd may come before frames of text.
    *((0, bytes([kind, 0x2A, 0x4D, 0x18]), ZSTD) for kind in range(0x50, 0x60)),
    *((0, b"BZh%d1AY&SY" % level, Kind("is compressed with bzip2", valid=_UNCOMPRESSED)) for level in range(1, 10)),
    (0, b"\xfd7zXZ\0", Kind("is compressed with xz", valid=_UNCOMPRESSED)),
    (0, b"\x5d\0\0", Kind("is compressed with lzma", valid=_UNCOMPRESSED)),
    (0, b"\x04\x22\x4d\x18", Kind("is compressed with lz4", valid=_UNCOMPRESSED)),
    (0, b"\x02\x21\x4c\x18", Kind("is compressed with lz4", valid=_UNCOMPRESSED)),
    (0, b"\xff\x06\0\0sNaPpY", Kind("is compressed with snappy", valid=_UNCOMPRESSED)),
    (0, b"\x89LZO\0", Kind("is compressed with lzop", valid=_UNCOMPRESSED)),
    (0, b"\x1f\x9d", Kind("is compressed with compress (.Z)", valid=_UNCOMPRESSED)),
    (0, b"\xff\xfe\0\0", Kind("is UTF-32 text", valid=_UTF_8.format("utf-32"))),
    (0, b"\0\0\xfe\xff", Kind("is UTF-32 text", valid=_UTF_8.format("utf-32"))),
    (0, b"\xff\xfe", Kind("is UTF-16 text", valid=_UTF_8.format("utf-16"))),
    (0, b"\xfe\xff", Kind("is UTF-16 text", valid=_UTF_8.format("utf-16"))),
    (0, b"\x00\x05\x16\x07", Kind("is a companion file of macOS, without data")),
]
"""Offsets and bytes of the kinds that are not text, longer bytes before shorter ones with the same beginning."""
_ZIP_MEMBERS = {
    rb"\[Content_Types\]\.xml|_rels/|xl/|docProps/": Kind("is an Excel workbook or another document of Office"),
    rb"[^/]*\.npy": Kind("is an archive of numpy (.npz)"),
    rb"[^/]+/(data\.pkl|byteorder|version)": Kind("is a file of torch.save"),
}
"""Kinds of zip archives, each by a pattern of the first member's name."""
_TEXTS: list[tuple[str, Kind]] = [
    (
        r"version https://git-lfs\.github\.com/spec/",
        Kind("is a pointer of Git LFS, not the file itself", valid="the file that `git lfs pull` fetches"),
    ),
    (
        r"(<!--[^>]*-->\s*)*<(!doctype\s+html|html)",
        Kind("is an HTML page, such as a server's login or error page", valid="the file that was to be fetched"),
    ),
    (
        r"<\?xml|<error>|<[a-z]\w*[^<>]*>\s*<",
        Kind("is an XML document, such as a store's error message", valid="the file that was to be fetched"),
    ),
    (r"%PDF-", Kind("is a PDF document")),
    (
        r"\[\s*(\{|\[|\])",
        Kind("is a JSON array", valid="JSON Lines, one object per line, as `jq -c '.[]' FILE` makes"),
    ),
    (
        r'\{\s*"error"\s*:\s*\{',
        Kind("is a server's error message in JSON", valid="the file that was to be fetched"),
    ),
    (
        r"\{\s*\n",
        Kind(
            "is JSON with objects over several lines",
            valid="JSON Lines, one object per line, as `jq -c . FILE` makes",
        ),
    ),
    (
        r"(%[^\n]*\n|\s)*@relation\s",
        Kind("is an ARFF file of Weka", valid="CSV: the lines after @data, with a line of column names before them"),
    ),
    (
        r"[+-]?[\d.]+([ \t]qid:\d+)?([ \t]\d+:[-+\d.e]+){2,}[ \t]*(#[^\n]*)?(\n|$)",
        Kind(
            "has rows in the format of libsvm (svmlight)",
            valid="rows with a value for each column, as sklearn.datasets.load_svmlight_file reads them",
        ),
    ),
    (
        r"[+-]?[\d.]+([ \t]\d+:\d+:[-+\d.e]+){2,}[ \t]*(\n|$)",
        Kind("has rows in the format of libffm", valid="rows with a value for each column"),
    ),
    (
        r"[+-]?[\d.]+( [\d.]+){0,2}( '?[^\s|]+)? ?\|[a-z]\w*(:[\d.]+)? [^|\n]*( \|[a-z]\w* |\S:[-\d.])",
        Kind("has rows in the format of Vowpal Wabbit", valid="rows with a value for each column"),
    ),
]
"""Patterns of the beginning of text that is no table of rows, any letter case."""
_TEXT_PATTERNS = [(re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in _TEXTS]
_CONTROL = re.compile(rb"[\0\x04-\x08\x0e-\x1a]|BZh[1-9]1AY&SY")
"""Bytes that text hardly has; Hive and others separate columns and lists by those that are not listed."""
_BLANKS = "\r\n\t "


def identify(start: bytes) -> Kind:
    """Identify the kind of a file by its first START_BYTES, fewer if it is shorter.

    JSON Lines are TEXT here: they are recognised by whole lines only, see `is_json_lines`.
    """
    text = _decode(start)
    if text is not None:
        # Texts may begin with the letters of a magic number, as a header `ORC,label` does.
        stripped = text.lstrip(_BLANKS).replace("\r\n", "\n")
        return next((kind for pattern, kind in _TEXT_PATTERNS if pattern.match(stripped)), TEXT)
    for offset, magic, kind in _MAGIC:
        if start.startswith(magic, offset):
            return _name_zip(start) or kind if magic == b"PK\x03\x04" else kind
    return _identify_binary(start)


def identify_file(file: DataFile) -> Kind:
    """Identify the kind of a file. Raises DataError if it cannot be read or is Parquet that ends early."""
    with file.open() as opened:
        raw = remove_buffer(opened)
        kind = identify(raw.read(START_BYTES) or b"")
        if kind is PARQUET:
            raw.seek(-min(4, file.num_bytes), io.SEEK_END)
            if raw.read(4) not in (b"PAR1", b"PARE"):
                message = "is a truncated Parquet file: its end, which describes the columns, is missing"
                raise DataError(message, file.name, valid="a complete Parquet file")
    return kind


@contextmanager
def name_other_kinds(files: Sequence[DataFile]) -> Iterator[None]:
    """Replace the DataError about one of `files` as a whole by one that says what it is, if it is not Parquet."""
    try:
        yield
    except DataError as error:
        file = next((file for file in files if file.name == error.file), None)
        if file is not None and error.line is None and error.field is None:
            kind = identify_file(file)
            if kind is not PARQUET:
                raise kind.make_error(file.name) from None
        raise


def remove_buffer(raw: BinaryIO) -> BinaryIO | io.RawIOBase:
    """Remove the buffer of `raw`, so that no more bytes are read than asked for."""
    return raw.raw if isinstance(raw, io.BufferedReader) else raw


def is_json_lines(first_lines: Sequence[bytes], file: str) -> bool:
    """Whether a text begins like JSON, comments and blank lines aside, and some of its first lines are whole objects.

    Raises DataError if it begins so, but none is.
    """
    rows = (line for line in first_lines if line.strip() and not line.startswith((b"#", b"//")))
    if not _JSON_START.match(next(rows, b"")):
        return False
    if not any(_is_json(line, b"{") for line in first_lines):
        raise _BROKEN_JSON.make_error(file)
    return True


def refuse_json_lines(first_line: bytes, file: str) -> None:
    """Raise DataError if the first line of a text with delimiters is a JSON object or array, or begins like one."""
    if _is_json(first_line, b"{"):
        raise JSON_LINES.make_error(file)
    if _JSON_START.match(first_line):
        raise _BROKEN_JSON.make_error(file)
    if _is_json(first_line, b"["):
        raise _JSON_ARRAYS.make_error(file)


def _is_json(line: bytes, start: bytes) -> bool:
    """Whether a line is a whole value of JSON that starts so."""
    try:
        return line.startswith(start) and json.loads(line) is not None
    except (ValueError, RecursionError):
        return False


def _decode(start: bytes) -> str | None:
    """Decode the first bytes of text in UTF-8; None if they are something else."""
    if _CONTROL.search(start):
        return None
    try:
        return start.removeprefix(_BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        # A letter may be cut at the end.
        is_cut = error.start >= len(start.removeprefix(_BYTE_ORDER_MARK)) - 3 and len(start) >= START_BYTES
        return start[: len(start) - 4].removeprefix(_BYTE_ORDER_MARK).decode(errors="replace") if is_cut else None


def _name_zip(start: bytes) -> Kind | None:
    """Name a zip archive by its first member."""
    name = start[30 : 30 + int.from_bytes(start[26:28], "little")]
    return next((kind for pattern, kind in _ZIP_MEMBERS.items() if re.match(pattern, name)), None)


def _identify_binary(start: bytes) -> Kind:
    """Identify the kind of bytes without magic bytes of their own; text in encodings without NUL bytes is TEXT."""
    if start[:4] == b"\xff\xff\xff\xff" and b"\0" in start:
        return ARROW_STREAM
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Kind("is a pickle of Python")
    if not start.strip(b"\0"):
        return Kind("begins with zeros alone, as a file does that was not copied to its end", valid=_COMPLETE)
    # Records of TFRecord begin with a length of eight bytes and its checksum; then follows a message of protobuf.
    if start[4:8] == bytes(4) and start[12:13] == b"\x0a" and len(start) >= 16:
        return Kind("is a TFRecord file")
    num_odd, num_even = start[1::2].count(0), start[::2].count(0)
    if abs(num_odd - num_even) > len(start) // 4:
        return Kind("is UTF-16 text", valid=_UTF_8.format("utf-16le" if num_odd > num_even else "utf-16be"))
    if start.count(0) > len(start) // 8 + 4:
        return Kind("is binary data of an unknown kind")
    return TEXT
