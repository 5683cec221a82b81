"""Beginnings of CSV files: comments and the header; and delimiters of several characters."""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace

from dlrm.data.errors import DataError
from dlrm.data.raw.text.lines import Lines, get_first_line

HEADER_VALID = "column names in the first line, or `columns` in the schema for a file without a header"

_ONE_CHARACTER = "\x1f"
"""Character that stands for a delimiter of several characters while a file is read."""
_NUM_LINES = 50
"""Largest number of lines that are looked at."""
_COMMENT = re.compile(rb"#|sep=.$")


def get_character(delimiter: str) -> str:
    """Return the character between the columns of the lines that `unify_delimiter` returns."""
    return delimiter if len(delimiter) == 1 else _ONE_CHARACTER


def unify_delimiter(data: bytes, delimiter: str) -> bytes:
    """Replace a delimiter of several characters by one character, as Arrow reads no other."""
    return data if len(delimiter) == 1 else data.replace(delimiter.encode(), _ONE_CHARACTER.encode())


def skip_comments(lines: Lines, delimiter: str) -> Lines:
    """Return the first lines of a file without the comments before its header or first row.

    Comments begin with `#`, and blank lines may be among them. The last one may be the header itself: it has as many
    columns as the line after it.
    """
    if not is_comment(get_first_line(lines)):
        return lines
    first_lines = list_first_lines(lines)
    end = next((place for place, line in enumerate(first_lines) if line.strip() and not is_comment(line)), None)
    if end is None:
        return lines
    num_columns = len(try_split(first_lines[end], delimiter))
    for line in first_lines[:end]:
        if line.startswith(b"#") and len(try_split(line, delimiter)) == num_columns:
            break
        lines = lines.drop_first()
    return lines


def count_lines_before_rows(lines: Lines, delimiter: str, *, has_header: bool) -> int:
    """Count the lines of comments and of a header. lines: the first lines of a file, as they stand."""
    unified = replace(lines, data=unify_delimiter(lines.data, delimiter))
    return skip_comments(unified, delimiter).first_number - lines.first_number + has_header


def split_header(lines: Lines, file: str, delimiter: str) -> list[str]:
    """Read the column names in the first of `lines`, without the `#` that may stand before them.

    A column without a name is added where every row ends in a delimiter and the header does not. Raises DataError if
    the line cannot be read.
    """
    line = get_first_line(lines)
    try:
        reader = csv.reader([line.decode(), ""], delimiter=get_character(delimiter))
        names = next(reader, [])
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"the header cannot be read: {error}"
        raise DataError(message, file, lines.first_number, valid=HEADER_VALID) from None
    if reader.line_num > 1:
        valid = "names without line ends, all in one line"
        raise DataError("a name in the header has a line end", file, lines.first_number, valid=valid)
    if line.startswith(b"#") and len(names) > 1:
        names[0] = names[0].lstrip("# ")
    rows = split_rows(lines, delimiter)[1:]
    if rows and all(len(row) == len(names) + 1 and not row[-1] for row in rows):
        names.append("")
    return names


def list_first_lines(lines: Lines) -> list[bytes]:
    """List the first lines of a run without their ends, _NUM_LINES at most."""
    first = lines.data.split(b"\n", _NUM_LINES)[: min(lines.num_lines, _NUM_LINES)]
    return [line.removesuffix(b"\r") for line in first]


def split_rows(lines: Lines, delimiter: str) -> list[list[str]]:
    """Split the first lines of a run into their cells."""
    return [try_split(line, delimiter) for line in list_first_lines(lines)]


def is_comment(line: bytes) -> bool:
    """Whether a line may come before the header: a comment, or Excel's line that states the delimiter."""
    return _COMMENT.match(line) is not None


def try_split(line: bytes, delimiter: str) -> list[str]:
    """Split a line into its cells; none if it cannot be read."""
    try:
        text = line.decode(errors="replace")
        return next(csv.reader([text], delimiter=get_character(delimiter)), [])
    except csv.Error:
        return []


def cut_at_headers(lines: Lines, header: bytes) -> Iterator[Lines]:
    """Yield the runs between the lines that repeat the header, as concatenated files do.

    header: the line, without its end. A byte order mark may stand before it.
    """
    start = number = 0
    # The search for bytes takes a fraction of the time that the pattern takes.
    pattern = re.compile(rb"(?:\xef\xbb\xbf)?%b\r?\n" % re.escape(header)) if header in lines.data else None
    for match in pattern.finditer(lines.data) if pattern is not None else ():
        if match.start() and lines.data[match.start() - 1 : match.start()] != b"\n":
            continue
        run = _cut(lines, start, match.start(), number)
        start, number = match.end(), number + run.num_lines + 1
        if run.num_lines:
            yield run
    if start < len(lines.data):
        yield _cut(lines, start, len(lines.data), number) if start else lines


def _cut(lines: Lines, start: int, end: int, number: int) -> Lines:
    """Cut a run from byte `start` to byte `end`; number: number of its first line among `lines`, from 0."""
    data, total = lines.data[start:end], len(lines.data)
    num_bytes = lines.num_bytes * end // total - lines.num_bytes * start // total
    return Lines(data, lines.first_number + number, data.count(b"\n"), num_bytes)
