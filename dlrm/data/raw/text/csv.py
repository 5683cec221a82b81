"""Reader of CSV, with a slow and exact check of the lines for blocks that Arrow's reader refuses."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import csv as arrow_csv

from dlrm.config import SchemaConfig, format_count, format_some
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows, Block, Parsed
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import refuse_json_lines
from dlrm.data.raw.text.csv_start import (
    HEADER_VALID,
    cut_at_headers,
    get_character,
    skip_comments,
    split_header,
    try_split,
    unify_delimiter,
)
from dlrm.data.raw.text.lines import (
    BLOCK_BYTES,
    DoubtfulError,
    Fault,
    Lines,
    get_first_line,
    is_utf8,
    read_lines,
    select_rows,
)
from dlrm.data.raw.values.columns import list_columns_to_read, parse_columns


class CsvLineChecker:
    """Checker of lines of `num_columns` delimited values; a value may be quoted, and a quote inside it is doubled."""

    def __init__(self, delimiter: str, num_columns: int, columns_from: str) -> None:
        """Build the pattern of a value. columns_from: source of `num_columns` in messages, as in `the header has`."""
        self._delimiter, self._shown_delimiter = get_character(delimiter).encode(), delimiter
        self._num_columns, self._columns_from = num_columns, columns_from
        between = re.escape(self._delimiter)
        # Possessive quantifiers: a quote that is never closed must not match as plain text.
        self._value = re.compile(rb'(?:"(?:[^"]++|"")*+"[^%b]*|[^"%b][^%b]*|)(?:%b|\Z)' % ((between,) * 4))

    def find_fault(self, line: bytes, _: int = 0) -> Fault | None:
        """Find why a line, given without its end, is no row; None for a row."""
        if not line:
            is_value = self._num_columns == 1
            valid = 'one row per line; "" is a missing value' if is_value else "one row per line"
            return None, ("the line is blank", valid)
        if b"\0" in line or b"\r" in line:
            character = "a NUL byte" if b"\0" in line else "a carriage return inside the line"
            return None, (f"holds {character}", "UTF-8 text whose lines end in LF or CR LF")
        if not is_utf8(line):
            return None, ("not UTF-8", "UTF-8 text")
        num_columns = self._count_columns(line)
        if num_columns is None:
            return None, ("a quoted value does not end on its line", "values without line breaks")
        if num_columns != self._num_columns:
            valid = f"{self._num_columns}, as {self._columns_from}, with {self._shown_delimiter!r} between them"
            return None, (f"has {format_count(num_columns, 'column')}", valid)
        return None

    def _count_columns(self, line: bytes) -> int | None:
        """Count the columns of a line; None if a quote stays open."""
        if b'"' not in line:
            return line.count(self._delimiter) + 1
        position, count = 0, 0
        while True:
            value = self._value.match(line, position)
            if value is None:
                return None
            position, count = value.end(), count + 1
            if not value[0].endswith(self._delimiter):
                return count


_NAME = re.compile(r"[^\W\d][\w.-]{0,39}")
_MAX_SHOWN_NAMES = 5
_WORD = re.compile(r"(?!nan$)[A-Za-z_].*", re.IGNORECASE | re.DOTALL)


def cut_csv_blocks(
    file: DataFile, schema: SchemaConfig, block_bytes: int = BLOCK_BYTES, with_labels: bool = True
) -> Iterator[Block]:
    """Cut `file` into blocks of about `block_bytes` of decompressed text.

    with_labels: read the label and the weight. Otherwise a file without a header may lack them: the number of values in
    its first line decides. Raises DataError if the header is wrong or the schema has lists of numbers, and as
    `read_lines` does.
    """
    if lists := [*schema.list_lengths]:
        valid = "jsonl, parquet or arrow; or CSV with a column for each number"
        raise DataError("CSV has no lists of numbers", file.name, field=lists[0], valid=valid)
    reader, header = None, None
    for lines in _read_lines(file, schema.delimiter, block_bytes):
        rows = lines
        if reader is None:
            refuse_json_lines(get_first_line(lines), file.name)
            first = skip_comments(lines, schema.delimiter)
            # A file to score may have a header though those of the training had none.
            cells, needed = try_split(get_first_line(first), schema.delimiter), list_columns_to_read(schema, False)
            if not schema.columns or (not with_labels and {*needed} <= {*cells} <= {*schema.columns}):
                required = [name for name in list_columns_to_read(schema, with_labels) if name not in file.path_values]
                names = _read_header(first, file.name, required, schema.delimiter)
                header, rows = get_first_line(first), first.drop_first()
            else:
                names, rows = schema.columns or [] if with_labels else _find_columns(first, schema), first
            reader = _BlockReader(file, schema, names, with_labels, rows.first_number)
        for run in (rows,) if header is None else cut_at_headers(rows, header):
            if run.num_lines:
                yield Block(file.name, run.num_lines, run.num_bytes, partial(reader.parse, run))


def _read_lines(file: DataFile, delimiter: str, block_bytes: int) -> Iterator[Lines]:
    """Yield all lines of a file with one character between columns."""
    for lines in read_lines(file, block_bytes):
        yield lines if len(delimiter) == 1 else replace(lines, data=unify_delimiter(lines.data, delimiter))


def _find_columns(lines: Lines, schema: SchemaConfig) -> list[str]:
    """Return `schema.columns`, without labels and weight where the number of values in the first line fits that."""
    listed = schema.columns or []
    fewer = [name for name in listed if name not in schema.target_names]
    is_without = CsvLineChecker(schema.delimiter, len(fewer), "").find_fault(get_first_line(lines)) is None
    return fewer if is_without else listed


def _read_header(lines: Lines, file: str, required: list[str], delimiter: str) -> list[str]:
    """Read the column names in the first line.

    required: names that must be among them. Raises DataError if one is missing or occurs twice, or the line cannot
    be read.
    """
    names = split_header(lines, file, delimiter)
    counts = Counter(names)
    number = lines.first_number
    for name in required:
        if name not in counts:
            message = f"there is no such column; {_list_names(names, required, name)}"
            raise DataError(message, file, number, name, HEADER_VALID)
        if counts[name] > 1:
            field = name if _NAME.fullmatch(name) else None
            raise DataError("the header has this name twice", file, number, field, "a different name for every column")
    return names


def _list_names(names: list[str], required: list[str], missing: str) -> str:
    """Describe the first line for a message, the names that are most like the `missing` one first.

    It is quoted only if it is a header: it has one of the `required` names, or looks like names. Otherwise it may be
    user data.
    """
    is_header = len(names) > 1 and all(_NAME.fullmatch(name) for name in names if name)
    if not is_header and not set(names) & set(required):
        return "the first line does not look like a header"
    close = difflib.get_close_matches(missing, names, n=_MAX_SHOWN_NAMES)
    shown = list(dict.fromkeys([*close, *names]))[:_MAX_SHOWN_NAMES]
    quoted = [name if _NAME.fullmatch(name) else repr(name) for name in shown]
    return f"the first line has {format_some(quoted, len(names))}"


class _BlockReader:
    """Parser of the blocks of one file."""

    def __init__(
        self,
        file: DataFile,
        schema: SchemaConfig,
        names: list[str],
        with_labels: bool,
        first_line: int,
    ) -> None:
        """Prepare to parse blocks.

        names: names of all columns of the file, in order; those that are not read may be blank or occur twice.
        first_line: number of the line of the first row.
        """
        self._file, self._schema, self._with_labels, self._first_line = file.name, schema, with_labels, first_line
        self._path_values = file.path_values
        further = {name: value for name, value in file.path_values.items() if name not in names}
        self._stated = {name: None if value in schema.missing else value for name, value in further.items()}
        """Values of further columns in all rows, by name; None: missing."""
        kept = {*list_columns_to_read(schema, with_labels)}
        self._names = [name if name in kept else f"\0{number}" for number, name in enumerate(names)]
        self._delimiter = get_character(schema.delimiter)
        columns_from = "the header has" if schema.columns is None else "the schema lists"
        if len(names) < len(schema.columns or []):
            columns_from = "the first line has, without the label"
        self._lines = CsvLineChecker(schema.delimiter, len(names), columns_from)

    def parse(self, lines: Lines, keep_going: bool) -> Parsed:
        bad = BadRows(self._file, lines.first_number, lines.num_lines)
        try:
            table = self._parse_strings(_normalise_line_ends(lines.data), lines.num_lines)
        except (DoubtfulError, pa.ArrowInvalid):
            table = self._parse_line_by_line(lines.data, bad, keep_going)
        if lines.first_number == self._first_line and bad.good[0] and self._is_header(table):
            valid = "data in the first line, or a schema without `columns`: the names then come from the header"
            bad.add(np.array([0]), self._schema.label, lambda _: ("the first line is a header", valid))
            table = table.slice(1)
        return parse_columns(table, self._schema, bad, keep_going, self._with_labels, self._path_values)

    def _parse_strings(self, data: bytes, num_lines: int) -> pa.Table:
        """Parse `data` to the columns to read, as strings, null if blank.

        Raises DoubtfulError if the number of rows is not `num_lines`, or pyarrow.ArrowInvalid.
        """
        read = list_columns_to_read(self._schema, self._with_labels)
        kept = [name for name in read if name not in self._stated]
        if not num_lines:
            return pa.schema(dict.fromkeys(read, pa.string())).empty_table()
        # Append one blank row: a quote left open at the end swallows it, so that the number of rows reveals the quote.
        num_extra = int(b'"' in data)
        data += (self._delimiter.encode() * (len(self._names) - 1) + b"\n") * num_extra
        table = read_strings(data, self._names, self._delimiter, kept, self._schema.missing)
        if table.num_rows != num_lines + num_extra:
            raise DoubtfulError("a quoted value continues on the next line")
        if self._delimiter != self._schema.delimiter and num_extra:
            # Inside quotes the delimiter is a part of the value.
            texts = pl.DataFrame(table).with_columns(
                pl.all().str.replace_all(self._delimiter, self._schema.delimiter, literal=True)
            )
            table = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
        table = table.slice(0, num_lines)
        for name in read:
            if name in self._stated:
                values = pa.repeat(pa.scalar(self._stated[name], pa.string()), num_lines)
                table = table.append_column(name, values)
        return table

    def _parse_line_by_line(self, data: bytes, bad: BadRows, keep_going: bool) -> pa.Table:
        rows = select_rows(data, bad, keep_going, self._lines.find_fault)
        try:
            return self._parse_strings(rows, int(bad.good.sum()))
        except (DoubtfulError, pa.ArrowInvalid):
            # Arrow's message is left out: it quotes the line.
            raise DataError("not readable", self._file, valid="CSV") from None

    def _is_header(self, table: pa.Table) -> bool:
        if not self._with_labels:
            return False
        label = table[self._schema.label][0].as_py()
        if self._schema.columns is None or label is None:
            return False
        # Where labels may be words, only the name of their column tells a header.
        return _WORD.fullmatch(label) is not None if self._schema.positive is None else label == self._schema.label


def read_strings(data: bytes, names: list[str], character: str, kept: list[str], missing: Sequence[str]) -> pa.Table:
    """Read the columns `kept` of lines as strings, null if blank or one of `missing`. Raises pyarrow.ArrowInvalid.

    names: different names of all columns. character: the one between columns.
    """
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        parse_options=arrow_csv.ParseOptions(delimiter=character, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.string()),
            include_columns=kept,
            null_values=["", *missing],
            strings_can_be_null=True,
        ),
    )


def _normalise_line_ends(data: bytes) -> bytes:
    """Return `data` with all lines ending in LF alone.

    Raises DoubtfulError or pyarrow.ArrowInvalid where some line is blank or not text.
    """
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\r" in data or b"\0" in data or b"\n\n" in data or data.startswith(b"\n"):
        raise DoubtfulError("some line is blank or holds control characters")
    offsets = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    return data
