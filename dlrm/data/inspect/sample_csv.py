"""Sampling of the rows of CSV files."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import polars as pl
import pyarrow as pa
from pyarrow import csv as arrow_csv

from dlrm.data.errors import DataError
from dlrm.data.format_count import format_count
from dlrm.data.inspect.sample import MAX_ROWS, FileSample, replace_nan, spread_evenly
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.csv_lines import CsvLineChecker
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.text import is_compressed, read_lines

_DELIMITERS = ",\t;|"
_MAX_FILES = 32
_NUM_POSITIONS = 8
"""Number of positions in one file where rows are read."""
_POSITION_BYTES = 1 << 18
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_CRITEO_COLUMNS = 40


def sample_csv(files: Sequence[DataFile]) -> FileSample:
    """Sample rows at 8 positions in each of up to 32 files; in a compressed file, at its beginning only.

    The delimiter is the candidate that occurs most often in the first line. A first line with a number is not a header:
    columns are then named column_1, column_2 and so on. Lines that are not rows are left out. Raises DataError, which
    names the file, where a file cannot be read or has other columns, and where no line is a row.
    """
    first = _read_first_line(files[0])
    delimiter = max(_DELIMITERS, key=first.count)
    names = _split_cells(first, delimiter, files[0])
    has_header = not any(_is_number(cell) for cell in names)
    if not has_header:
        _refuse_criteo(names, delimiter, files[0])
        names = [f"column_{number}" for number in range(1, len(names) + 1)]
    _refuse_repeated(names, files[0])
    parts: list[pl.DataFrame] = []
    all_bad: list[BadRows] = []
    lacking: dict[str, str] = {}
    for index, file in enumerate(files):
        file_names = names if index == 0 else _read_names(file, names, delimiter, has_header)
        lacking |= {name: f"not in {file.name}" for name in names if name not in file_names}
        if index in spread_evenly(len(files), _MAX_FILES):
            for data, first_line in _read_pieces(file, has_header):
                bad = BadRows(file.name, first_line or 0, data.count(b"\n"))
                parts.append(_parse_rows(data, file_names, delimiter, bad))
                if first_line is not None:
                    all_bad.append(bad)
    rows = pl.concat([part.select([name for name in names if name not in lacking]) for part in parts])
    if not rows.height:
        for bad in all_bad:
            bad.raise_first()
        raise DataError("there are no rows", files[0].name, valid="files with rows")
    rows = rows.gather_every(-(-rows.height // MAX_ROWS))
    typed = replace_nan(rows.select(_convert_texts(rows[name]) for name in rows.columns))
    types = {name: lacking.get(name) or _name_type(typed[name].dtype) for name in names}
    filled = typed.with_columns(pl.lit(None).alias(name) for name in lacking).select(names)
    return FileSample(filled, None, types, delimiter, has_header)


def _read_first_line(file: DataFile) -> str:
    lines = next(read_lines(file, _POSITION_BYTES))
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


def _refuse_criteo(cells: list[str], delimiter: str, file: DataFile) -> None:
    if delimiter == "\t" and len(cells) == _CRITEO_COLUMNS and cells[0] in ("0", "1"):
        raise DataError(
            "looks like Criteo TSV, whose columns are known", file.name, valid="`dlrm prepare FILES` without --infer"
        )


def _read_pieces(file: DataFile, has_header: bool) -> Iterator[tuple[bytes, int | None]]:
    """Yield runs of whole lines from several positions, each with the number of its first line, None where unknown."""
    with file.open() as raw:
        start = raw.read(4)
    if is_compressed(start) or file.num_bytes <= _NUM_POSITIONS * _POSITION_BYTES:
        for lines in islice(read_lines(file, _POSITION_BYTES), _NUM_POSITIONS):
            without_header = lines.drop_first() if has_header and lines.first_number == 1 else lines
            yield without_header.data, without_header.first_number
        return
    with file.open() as raw:
        for position in range(_NUM_POSITIONS):
            raw.seek(position * (file.num_bytes - _POSITION_BYTES) // (_NUM_POSITIONS - 1))
            # Drop the first line, which is a header or incomplete.
            _, _, data = raw.read(_POSITION_BYTES).partition(b"\n")
            yield data[: data.rfind(b"\n") + 1], None if position else 2


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


def _convert_texts(texts: pl.Series) -> pl.Series:
    present = texts.drop_nulls()
    if not len(present):
        return texts
    if present.str.contains(_INTEGER).all():
        return texts.cast(pl.Int64)
    numbers = texts.cast(pl.Float64, strict=False)
    # A number with leading zeros, such as 007, is a name.
    if numbers.null_count() == texts.null_count() and not present.str.contains(r"^-?0[0-9]").any():
        return numbers
    return texts


def _name_type(kind: pl.DataType) -> str:
    return "integer" if kind == pl.Int64 else "number" if kind == pl.Float64 else "text"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
