"""Sampling of the rows of CSV files."""

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import polars as pl
import pyarrow as pa
from pyarrow import csv as arrow_csv

from dlrm.config import CRITEO_SCHEMA, format_count
from dlrm.data.errors import DataError
from dlrm.data.inspect.csv_pieces import TextPiece, read_pieces
from dlrm.data.inspect.file_columns import find_unshared_columns
from dlrm.data.inspect.missing_words import MISSING_WORDS, find_missing_words
from dlrm.data.inspect.sample import MAX_ROWS, FileSample, pick_columns, replace_nan, spread_evenly
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.convert import parse_numbers
from dlrm.data.raw.csv_lines import CsvLineChecker
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.text import is_utf8, read_lines

_DELIMITERS = ",\t;|"
_FIRST_BYTES = 1 << 18
_NUM_LINES = 50
"""Largest number of lines that tell whether the first one is a header."""
_NAME = re.compile(r"[^\W\d].{0,99}")
_WHOLE_NUMBER = r"^\s*-?(0|[1-9][0-9]*)\s*$"
_CRITEO_CELLS = [r"[01]", *[r"(-?[0-9]+)?"] * 13, *[r"([0-9a-fA-F]{1,8})?"] * 26]
_MAX_BAD_SHARE = 0.5
"""Largest share of lines that are no rows: beyond it, the files are not CSV, or of another delimiter."""
_MAX_UNDECODABLE_SHARE = 0.01
"""Largest share of lines that are not UTF-8: beyond it, the files are in another encoding. Without these lines, whole
values would be missing: those with letters beyond ASCII."""


def sample_csv(files: Sequence[DataFile], others: Sequence[DataFile] = ()) -> FileSample:
    """Sample rows of `files`, at many positions; of compressed files, from their beginning.

    others: files that should have the same columns, such as those of the evaluation; no rows of them are sampled. The
    delimiter is the candidate that occurs most often in the first line. A first line with a number is not a header,
    unless a name stands in it over numbers alone: columns are then named column_1, column_2 and so on. Lines that are
    not rows are left out. Raises DataError, which names the file, where a file cannot be read or has other columns, and
    where most lines are no rows.
    """
    first = _read_first_line(files[0])
    delimiter = max(_DELIMITERS, key=first.count)
    names = _split_cells(first, delimiter, files[0])
    has_header = _is_header(names, files[0], delimiter)
    if not has_header:
        names = [f"column_{number}" for number in range(1, len(names) + 1)]
    _refuse_repeated(names, files[0])
    names_by_file = {files[0].name: names}
    for file in chain(files[1:], others):
        names_by_file[file.name] = _read_names(file, names, delimiter, has_header)
    # Files without a header have the columns that the document lists, and no others.
    stated = {file.name: file.path_values if has_header else {} for file in chain(files, others)}
    all_names_by_file = {name: list(dict.fromkeys([*own, *stated[name]])) for name, own in names_by_file.items()}
    unshared = find_unshared_columns(all_names_by_file)
    # The file that a column names is the first one that lacks it, and `others` come last.
    own = {file.name for file in files}
    readable = [
        name for name in all_names_by_file[files[0].name] if name not in unshared or unshared[name].file not in own
    ]
    pieces, num_rows, is_estimate = read_pieces(files, MAX_ROWS, has_header=has_header)
    rows, bad_share = _parse_pieces(pieces, names_by_file, readable, delimiter, stated)
    rows = rows[spread_evenly(rows.height, MAX_ROWS)]
    missing = find_missing_words(rows)
    rows = rows.with_columns(pl.all().replace(dict.fromkeys(missing)))
    typed = replace_nan(rows.select(convert_texts(rows[name]) for name in rows.columns))
    all_names = list(dict.fromkeys(chain.from_iterable(all_names_by_file.values())))
    types = {name: str(unshared[name]) if name in unshared else name_type(typed[name].dtype) for name in all_names}
    filled = typed.with_columns(pl.lit(None).alias(name) for name in all_names if name not in readable)
    return FileSample(
        pick_columns(filled, all_names),
        max(num_rows, rows.height),
        types,
        is_estimate,
        bad_share,
        delimiter,
        has_header,
        missing,
        unshared,
    )


def sample_criteo(files: Sequence[DataFile]) -> FileSample:
    """Sample rows of files in the Criteo format, as text, with the names of its columns."""
    pieces, num_rows, is_estimate = read_pieces(files, MAX_ROWS, has_header=False)
    names = CRITEO_SCHEMA.columns or []
    rows, bad_share = _parse_pieces(pieces, {file.name: names for file in files}, names, "\t", {})
    types = dict.fromkeys(names, "text")
    return FileSample(rows, max(num_rows, rows.height), types, is_estimate, bad_share, "\t", has_header=False)


def is_criteo(file: DataFile) -> bool:
    """Whether the first line of `file` is a row in the Criteo format: a label, 13 integers and 26 hexadecimal ids."""
    cells = _read_first_line(file).split("\t")
    return (
        len(cells) == len(_CRITEO_CELLS)
        and pl.DataFrame({"cell": cells, "pattern": _CRITEO_CELLS})
        .select(pl.col("cell").str.contains("^" + pl.col("pattern") + "$").all())
        .item()
    )


def _read_lines_after_first(file: DataFile) -> list[str]:
    """Read whole lines after the first one, as many as its block has, up to _NUM_LINES."""
    lines = next(read_lines(file, _FIRST_BYTES))
    text = lines.data.decode(errors="replace")
    return text.split("\n")[1 : 1 + min(_NUM_LINES, lines.num_lines - 1)]


def _read_first_line(file: DataFile) -> str:
    lines = next(read_lines(file, _FIRST_BYTES))
    try:
        return lines.data[: lines.data.index(b"\n")].removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 (byte {error.start} of the line)", file.name, 1, valid="UTF-8 text") from None


def _split_cells(line: str, delimiter: str, file: DataFile) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        raise DataError(f"the first line cannot be read: {error}", file.name, 1, valid="CSV") from None


def _read_names(file: DataFile, names: list[str], delimiter: str, has_header: bool) -> list[str]:
    """Return the column names of another file.

    Raises DataError where a header repeats a name, or where the first line without header has another number of columns
    than `names`.
    """
    cells = _split_cells(_read_first_line(file), delimiter, file)
    if has_header:
        _refuse_repeated(cells, file)
        return cells
    if len(cells) != len(names):
        raise DataError(
            f"has {format_count(len(cells), 'column')}", file.name, 1, valid=f"{len(names)}, as the first file"
        )
    return names


def _refuse_repeated(names: list[str], file: DataFile) -> None:
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise DataError("two columns have this name", file.name, 1, repeated, "a different name for each column")


def _parse_pieces(
    pieces: Sequence[TextPiece],
    names_by_file: dict[str, list[str]],
    kept: list[str],
    delimiter: str,
    stated: Mapping[str, Mapping[str, str | None]],
) -> tuple[pl.DataFrame, float]:
    """Parse the rows of all pieces to the columns `kept`, as text. Return them and the share of lines that are no rows.

    stated: values of columns that only the path of a file has, by file and name.
    Raises DataError, that of the first bad line, where most lines are no rows, and where files are not UTF-8.
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
    """Raise DataError where more than _MAX_UNDECODABLE_SHARE of the lines of a file are not UTF-8."""
    num_lines, num_undecodable = Counter[str](), Counter[str]()
    for piece in pieces:
        num_lines[piece.file] += piece.data.count(b"\n")
        if not is_utf8(piece.data):
            num_undecodable[piece.file] += sum(not is_utf8(line) for line in piece.data.split(b"\n"))
    for file, number in num_undecodable.items():
        if number > _MAX_UNDECODABLE_SHARE * num_lines[file]:
            message = f"{number / num_lines[file]:.2%} of the lines are not UTF-8: the file has another encoding"
            raise DataError(message, file, valid="UTF-8 text, as `iconv -f latin1 -t utf-8` makes of Latin-1")


def _parse_rows(data: bytes, names: list[str], delimiter: str, bad: BadRows) -> pl.DataFrame:
    """Parse lines to columns of text by the rules of training: lines that are not rows are recorded in `bad`."""
    data = CsvLineChecker(delimiter, len(names), "the first line has").select_rows(data, bad, keep_going=True)
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String()))
    table = arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )
    return pl.DataFrame({name: pl.Series(table[name]) for name in names})


def convert_texts(texts: pl.Series) -> pl.Series:
    """Convert texts to integers or numbers if all of them are; texts stay otherwise."""
    present = texts.drop_nulls()
    if not len(present):
        return texts
    if present.str.contains(_WHOLE_NUMBER).all():
        integers = parse_numbers(texts, pl.Int64())
        # Beyond int64, numbers name something: as floats, neighbours would be the same.
        return integers if integers.null_count() == texts.null_count() else texts
    numbers = parse_numbers(texts, pl.Float64())
    # A number with leading zeros, such as 007, is a name.
    if numbers.null_count() == texts.null_count() and not present.str.contains(r"^\s*-?0[0-9]").any():
        return numbers
    return texts


def name_type(kind: pl.DataType) -> str:
    """Name the type of a column that `convert_texts` returns."""
    return "integer" if kind == pl.Int64 else "number" if kind == pl.Float64 else "text"


def _is_header(cells: Sequence[str], file: DataFile, delimiter: str) -> bool:
    """Whether the first line of a file, which has these cells, has the names of its columns."""
    if not any(_is_number(cell) for cell in cells):
        return True
    # Names may be numbers too, such as years: then one that is none stands over numbers.
    rows = [row for line in _read_lines_after_first(file) if len(row := _try_split(line, delimiter)) == len(cells)]
    for place, cell in enumerate(cells):
        below = [row[place] for row in rows if row[place].strip()]
        text = cell.strip()
        is_name = _NAME.fullmatch(text) and not _is_number(text) and text.lower() not in MISSING_WORDS
        is_enough = len(below) >= max(2, len(rows) // 2)
        if is_name and is_enough and all(map(_is_number, below)):
            return True
    return False


def _try_split(line: str, delimiter: str) -> list[str]:
    """Split a line into its cells; none where it cannot be read."""
    try:
        return next(csv.reader([line.removesuffix("\r")], delimiter=delimiter), [])
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
