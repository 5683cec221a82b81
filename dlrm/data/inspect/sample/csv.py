"""Sampling of the rows of CSV files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl

from dlrm.config import CRITEO_SCHEMA, format_count
from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.file_sample import (
    MAX_ROWS,
    FileSample,
    find_unshared_columns,
    pick_columns,
    spread_evenly,
)
from dlrm.data.inspect.sample.pieces import TextPiece, read_pieces
from dlrm.data.inspect.sample.text_columns import MISSING_WORDS, convert_texts, name_type
from dlrm.data.raw.block import BadRows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import refuse_json_lines
from dlrm.data.raw.text.csv import CsvLineChecker, read_strings
from dlrm.data.raw.text.csv_start import (
    count_lines_before_rows,
    cut_at_headers,
    get_character,
    is_comment,
    list_first_lines,
    skip_comments,
    split_header,
    split_rows,
    try_split,
    unify_delimiter,
)
from dlrm.data.raw.text.lines import Lines, get_first_line, is_utf8, read_lines, select_rows

_FIRST_BYTES = 1 << 18
_NAME = re.compile(r"[^\W\d].{0,99}")
_CRITEO_CELLS = [r"[01]", *[r"(-?[0-9]+)?"] * 13, *[r"([0-9a-fA-F]{1,8})?"] * 26]
_UTF8 = "UTF-8 text, as `iconv -f cp1252 -t utf-8` makes of what Excel writes"
_MAX_BAD_SHARE = 0.5
"""Largest share of lines that are no rows: beyond it, the files are not CSV, or of another delimiter."""
_MAX_UNDECODABLE_SHARE = 0.01
"""Largest share of lines that are not UTF-8: beyond it, the files are in another encoding. Without these lines, whole
values would be missing: those with letters beyond ASCII."""


def sample_csv(files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows of `files`, at many positions; of compressed files, from their beginning.

    others: files that should have the same columns, such as the evaluation files; no rows of them are sampled. For the
    delimiter see `find_delimiter`. A first line with a number is not a header, unless a name stands in it over numbers
    alone: columns are then named column_1, column_2 and so on. Lines that are not rows are left out, and so are columns
    with a blank or repeated name. Raises DataError, which names the file, if a file cannot be read or has other
    columns, and if most lines are no rows.
    """
    delimiter = find_delimiter(_read_start(files[0]))
    layouts = {file.name: _read_layout(file, delimiter) for file in (*files, *others)}
    first = layouts[files[0].name]
    has_header = _is_header(first, delimiter)
    if has_header:
        names_by_file = {file: layout.names for file, layout in layouts.items()}
    else:
        names_by_file = dict.fromkeys(layouts, _number_columns(layouts))
    faults = _find_name_faults(names_by_file.values())
    # Files without a header have the columns that the document lists, and no others.
    stated = {file.name: file.path_values if has_header else {} for file in (*files, *others)}
    all_names_by_file = {file: list(dict.fromkeys([*own, *stated[file]])) for file, own in names_by_file.items()}
    unshared = find_unshared_columns(
        {file: [name for name in names if name not in faults] for file, names in all_names_by_file.items()}
    )
    # The file that a column names is the first one that lacks it, and `others` come last.
    own = {file.name for file in files}
    readable = [
        name
        for name in all_names_by_file[files[0].name]
        if name not in faults and (name not in unshared or unshared[name].file not in own)
    ]
    if faults and len(readable) <= 1:
        name, reason = next(iter(faults.items()))
        valid = "a different name for each column"
        raise DataError(reason.removeprefix("not clear: "), files[0].name, first.lines.first_number, name, valid)
    pieces, num_rows, is_estimate = read_pieces(
        files, MAX_ROWS, lambda lines: count_lines_before_rows(lines, delimiter, has_header=has_header)
    )
    headers = {file: get_first_line(layout.lines) if has_header else b"" for file, layout in layouts.items()}
    pieces = [_clean_piece(piece, headers[piece.file], delimiter) for piece in pieces]
    rows, bad_share = _parse_pieces(pieces, names_by_file, readable, delimiter, stated)
    rows = rows[spread_evenly(rows.height, MAX_ROWS)]
    rows, typed, missing = convert_texts(rows)
    all_names = list(dict.fromkeys(chain.from_iterable(all_names_by_file.values())))
    types = faults | {name: str(column) for name, column in unshared.items()}
    types = {name: types.get(name) or name_type(typed[name].dtype) for name in all_names}
    filled = typed.with_columns(pl.lit(None).alias(name) for name in all_names if name not in readable)
    picked, height = pick_columns(filled, all_names), max(num_rows, rows.height)
    return FileSample(picked, height, types, is_estimate, bad_share, delimiter, has_header, missing, unshared)


def _number_columns(layouts: "Mapping[str, _Layout]") -> list[str]:
    """Name the columns of files without a header. Raises DataError if a file has another number of columns than the
    first one."""
    num_columns = len(next(iter(layouts.values())).names)
    for file, layout in layouts.items():
        if len(layout.names) != num_columns:
            message = f"has {format_count(len(layout.names), 'column')}"
            raise DataError(message, file, layout.lines.first_number, valid=f"{num_columns}, as the first file")
    return [f"column_{number}" for number in range(1, num_columns + 1)]


def sample_criteo(files: Sequence[DataFile]) -> FileSample:
    """Sample rows of files in the Criteo format, as text, with the names of its columns."""
    pieces, num_rows, is_estimate = read_pieces(files, MAX_ROWS)
    names = CRITEO_SCHEMA.columns or []
    rows, bad_share = _parse_pieces(pieces, {file.name: names for file in files}, names, "\t", {})
    types = dict.fromkeys(names, "text")
    return FileSample(rows, max(num_rows, rows.height), types, is_estimate, bad_share, "\t", has_header=False)


def is_criteo(file: DataFile) -> bool:
    """Whether the first line of `file` is a row in the Criteo format: a label, 13 integers and 26 hexadecimal ids."""
    cells = get_first_line(_read_start(file)).decode().split("\t")
    return len(cells) == len(_CRITEO_CELLS) and all(map(re.fullmatch, _CRITEO_CELLS, cells))


@dataclass(frozen=True)
class _Layout:
    """The beginning of a CSV file."""

    names: list[str]
    """Cells of the first line: names of the columns, or values."""
    lines: Lines
    """First lines, without the comments before them."""


def _read_layout(file: DataFile, delimiter: str) -> _Layout:
    lines = _read_start(file)
    lines = skip_comments(replace(lines, data=unify_delimiter(lines.data, delimiter)), delimiter)
    return _Layout(split_header(lines, file.name, delimiter), lines)


def _read_start(file: DataFile) -> Lines:
    """Read the first lines. Raises DataError if they are JSON, or the first one is not UTF-8."""
    lines = next(read_lines(file, _FIRST_BYTES))
    line = get_first_line(lines)
    refuse_json_lines(line, file.name)
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 (byte {error.start} of the line)", file.name, 1, valid=_UTF8) from None
    return lines


def _clean_piece(piece: TextPiece, header: bytes, delimiter: str) -> TextPiece:
    """Return a piece with one character between columns, without lines that repeat the header."""
    data = unify_delimiter(piece.data, delimiter)
    if header and header in data:
        data = b"".join(run.data for run in cut_at_headers(Lines(data, 1, data.count(b"\n"), 0), header))
    return replace(piece, data=data)


def _find_name_faults(all_names: Iterable[Sequence[str]]) -> dict[str, str]:
    """Find the names that are blank or occur twice in a file, with the reason why such a column cannot be used."""
    faults: dict[str, str] = {}
    for names in all_names:
        repeated = (name for name, count in Counter(names).items() if count > 1)
        faults |= dict.fromkeys(repeated, "not clear: two columns have this name")
        faults |= {name: "not clear: it has no name" for name in names if not name.strip()}
    return faults


def _parse_pieces(
    pieces: Sequence[TextPiece],
    names_by_file: dict[str, list[str]],
    kept: list[str],
    delimiter: str,
    stated: Mapping[str, Mapping[str, str | None]],
) -> tuple[pl.DataFrame, float]:
    """Parse the rows of all pieces to the columns `kept`, as text. Return them and the share of lines that are no rows.

    stated: values of columns that only the path of a file has, by file and name.
    Raises DataError if most lines are no rows (the error of the first bad line), and if files are not UTF-8.
    """
    parts: list[pl.DataFrame] = []
    all_bad: list[BadRows] = []
    num_lines = num_bad = 0
    _check_encoding(pieces)
    for piece in pieces:
        bad = BadRows(piece.file, piece.first_line or 0, piece.data.count(b"\n"))
        part = _parse_rows(piece.data, names_by_file[piece.file], delimiter, bad)
        values = {name: value for name, value in stated.get(piece.file, {}).items() if name not in part.columns}
        part = part.with_columns(pl.lit(value, pl.String).alias(name) for name, value in values.items())
        parts.append(pick_columns(part, kept))
        num_lines += len(bad.good)
        num_bad += len(bad.good) - int(bad.good.sum())
        if piece.first_line is not None:
            all_bad.append(bad)
    if not num_lines:
        raise DataError("there are no rows", next(iter(names_by_file)), valid="files with rows")
    if num_bad > _MAX_BAD_SHARE * num_lines:
        for bad in all_bad:
            bad.raise_first()
    return pl.concat(parts), num_bad / num_lines


def _check_encoding(pieces: Sequence[TextPiece]) -> None:
    """Raise DataError if more than _MAX_UNDECODABLE_SHARE of the lines of a file are not UTF-8."""
    num_lines, num_undecodable = Counter[str](), Counter[str]()
    for piece in pieces:
        num_lines[piece.file] += piece.data.count(b"\n")
        if not is_utf8(piece.data):
            num_undecodable[piece.file] += sum(not is_utf8(line) for line in piece.data.split(b"\n"))
    for file, number in num_undecodable.items():
        if number > _MAX_UNDECODABLE_SHARE * num_lines[file]:
            message = f"{number / num_lines[file]:.2%} of the lines are not UTF-8: the file has another encoding"
            raise DataError(message, file, valid=_UTF8)


def _parse_rows(data: bytes, names: list[str], delimiter: str, bad: BadRows) -> pl.DataFrame:
    """Parse lines to columns of text by the rules of training: lines that are not rows are recorded in `bad`."""
    checker = CsvLineChecker(delimiter, len(names), "the first line has")
    data = select_rows(data, bad, keep_going=True, find_fault=checker.find_fault)
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(dict.fromkeys(names), pl.String()))
    # Names that are blank or occur twice are not read.
    unique = [name if names.count(name) == 1 else f"\0{number}" for number, name in enumerate(names)]
    table = read_strings(data, unique, get_character(delimiter), unique, ())
    return pl.DataFrame({name: pl.Series(table[name]) for name in unique})


def _is_header(layout: _Layout, delimiter: str) -> bool:
    """Whether the first line of a file has the names of its columns."""
    cells = layout.names
    if not any(_is_number(cell) for cell in cells):
        return True
    # Names may be numbers too, such as years: then one that is none stands over numbers.
    rows = [row for row in split_rows(layout.lines, delimiter)[1:] if len(row) == len(cells)]
    for place, cell in enumerate(cells):
        below = [row[place] for row in rows if row[place].strip()]
        text = cell.strip()
        is_name = _NAME.fullmatch(text) and not _is_number(text) and text.lower() not in MISSING_WORDS
        is_enough = len(below) >= max(2, len(rows) // 2)
        if is_name and is_enough and all(map(_is_number, below)):
            return True
    return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_USUAL = (",", "\t", ";", "|")
_OTHERS = ("||", "::", "\x01", "\x02", "\x1f", "^", "~", " ")
"""Delimiters that are taken only if the usual ones do not divide the lines."""
_MAX_UNEVEN_SHARE = 0.5


def find_delimiter(lines: Lines) -> str:
    """Find the delimiter of a file by its first lines: the usual one that occurs most often in the first row.

    Another one is taken where it divides every line into equally many columns, and the usual one does not.
    """
    first_lines = list_first_lines(lines)
    rows = [line for line in first_lines if line.strip() and not is_comment(line)] or first_lines
    usual = max(_USUAL, key=lambda delimiter: rows[0].count(delimiter.encode()))
    if usual == "|" and all(row.count(b"|") == 2 * row.count(b"||") for row in rows):
        usual = "||"
    if _measure_agreement(rows, usual) > _MAX_UNEVEN_SHARE:
        return usual
    return next((other for other in (*_USUAL, *_OTHERS) if _measure_agreement(rows, other) == 1.0), usual)


def _measure_agreement(rows: list[bytes], delimiter: str) -> float:
    """Measure the share of the rows that have as many columns as the first one; 0 if that has one."""
    widths = [len(try_split(unify_delimiter(row, delimiter), delimiter)) for row in rows]
    return widths.count(widths[0]) / len(widths) if widths[0] > 1 else 0.0
