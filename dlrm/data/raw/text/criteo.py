"""Reader of Criteo TSV, with a slow and exact check of the lines for blocks that the fast reader refuses."""

import re
from collections.abc import Iterator
from enum import Enum
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import CRITEO_SCHEMA, format_count
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows, Block, CategoricalValues, Parsed, RawTable, format_value, make_unknown_labels
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.file_kinds import refuse_json_lines
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
from dlrm.data.raw.values.distinct import encode_distinct_ids
from dlrm.data.raw.values.integers import VALID

_COLUMNS = CRITEO_SCHEMA.names
_NUM_DENSE = len(CRITEO_SCHEMA.dense)
_NUM_CATEGORICAL = len(CRITEO_SCHEMA.categorical)

_INTEGER = rb"-?0*[0-9]{1,18}"
_HEXADECIMAL = rb"[0-9a-fA-F]{1,8}"
_FEATURES = rb"(?:\t(?:%b)?){%d}(?:\t(?:%b)?){%d}" % (_INTEGER, _NUM_DENSE, _HEXADECIMAL, _NUM_CATEGORICAL)
_WORD = re.compile(rb"[A-Za-z_]+[A-Za-z_0-9 ]*")


class Labels(Enum):
    """Treatment of the label column; each value describes how a line begins."""

    READ = "the label, 0 or 1"
    IGNORED = "anything, where the label would be"
    ABSENT = "the first integer"

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a line, in order."""
        return _COLUMNS[1:] if self is Labels.ABSENT else _COLUMNS


_ROWS = {
    Labels.READ: re.compile(rb"[01]" + _FEATURES),
    Labels.IGNORED: re.compile(rb"[^\t]*" + _FEATURES),
    # Lines get a tab in front before the match, since the pattern of every feature begins with one.
    Labels.ABSENT: re.compile(_FEATURES),
}


def _find_fault(line: bytes, labels: Labels, is_first: bool) -> Fault:
    """Find the fault of a bad line. is_first: whether it is the first line of the file."""
    if not line:
        return None, ("the line is blank", "one row per line")
    if not is_utf8(line):
        return None, ("not UTF-8", "plain UTF-8 text, or text compressed with gzip or zstd")
    columns = line.split(b"\t")
    if is_first and _WORD.fullmatch(columns[0]):
        return None, ("the first line is a header", "only rows; format csv reads files with a header")
    names = labels.columns
    if len(columns) != len(names):
        description = "13 integers, 26 hexadecimal categories; a blank is a missing value"
        valid = f"{len(names)}: {'' if labels is Labels.ABSENT else 'label, '}{description}"
        # After the first line it is known whether the file has the label column.
        valid += "; or 39, without the label" if labels is Labels.IGNORED and is_first else ""
        return None, (f"has {format_count(len(columns), 'tab-separated column')}", valid)
    if labels is Labels.READ and columns[0] not in (b"0", b"1"):
        description = f"{format_value(columns[0].decode())} is not a label" if columns[0] else "the label is missing"
        return "label", (description, "0 or 1")
    first = 0 if labels is Labels.ABSENT else 1
    for position, value in enumerate(columns[first:]):
        is_dense = position < _NUM_DENSE
        if value and not re.fullmatch(_INTEGER if is_dense else _HEXADECIMAL, value):
            description = "an integer" if is_dense else "a hexadecimal id"
            valid = "up to 18 digits, with - in front where negative, or blank" if is_dense else VALID
            return names[first + position], (f"{format_value(value.decode())} is not {description}", valid)
    raise AssertionError("a line without a fault is a row")


_DENSE = [column.name for column in CRITEO_SCHEMA.dense]
_CATEGORICAL = [column.name for column in CRITEO_SCHEMA.categorical]
_TYPES = {name: pl.Int64() if name in _DENSE else pl.String() for name in CRITEO_SCHEMA.names}
_MAX_ID_DIGITS = 8
_MAX_INTEGER = 10**18 - 1
_TAB, _NEWLINE, _MINUS, _ZERO, _ONE = b"\t\n-01"


def cut_criteo_blocks(file: DataFile, block_bytes: int = BLOCK_BYTES, with_labels: bool = True) -> Iterator[Block]:
    """Cut `file` into blocks of about `block_bytes` of decompressed text. Raises DataError as `read_lines` does.

    with_labels: read the labels. Otherwise the file may lack their column: the number of columns in its first line
    decides.
    """
    labels = Labels.READ if with_labels else None
    for lines in read_lines(file, block_bytes):
        if lines.first_number == 1:
            refuse_json_lines(get_first_line(lines), file.name)
        if labels is None:
            num_columns = lines.data[: lines.data.index(b"\n")].count(b"\t") + 1
            labels = Labels.ABSENT if num_columns == len(Labels.ABSENT.columns) else Labels.IGNORED
        yield Block(file.name, lines.num_lines, lines.num_bytes, partial(_parse, lines, file.name, labels))


def _parse(lines: Lines, file: str, labels: Labels, keep_going: bool) -> Parsed:
    try:
        data = lines.data.replace(b"\r\n", b"\n") if b"\r" in lines.data else lines.data
        return Parsed(_parse_table(data, lines.num_lines, labels))
    except (DoubtfulError, pl.exceptions.PolarsError):
        pass
    bad = BadRows(file, lines.first_number, lines.num_lines)
    is_row, prefix = _ROWS[labels].fullmatch, b"\t" if labels is Labels.ABSENT else b""

    def find_fault(line: bytes, row: int) -> Fault | None:
        return None if is_row(prefix + line) else _find_fault(line, labels, is_first=lines.first_number + row == 1)

    data = select_rows(lines.data, bad, keep_going, find_fault)
    if not keep_going:
        bad.raise_first()
    try:
        return bad.make_parsed(_parse_table(data, int(bad.good.sum()), labels, is_checked=True))
    except (DoubtfulError, pl.exceptions.PolarsError):
        # Polars' message is left out: it may quote the line.
        raise DataError("not readable", file, valid="Criteo TSV") from None


def _parse_table(data: bytes, num_rows: int, labels: Labels, is_checked: bool = False) -> RawTable:
    """Parse the lines with Polars. Raises DoubtfulError or a PolarsError if some line may not be a row.

    is_checked: every line is known to be a row, so that the checks of form and values are skipped.
    """
    if not num_rows:
        none = CategoricalValues(np.empty(0, dtype=np.int32), pl.Series([], dtype=pl.Int64))
        return RawTable(np.empty(0, np.float32), None, [np.empty(0)] * len(_DENSE), [none] * len(_CATEGORICAL))
    characters = np.frombuffer(data, dtype=np.uint8)
    starts = np.flatnonzero(characters == _NEWLINE) + 1
    starts = np.concatenate([[0], starts[:-1]])
    if not is_checked:
        _check_form(data, characters, starts, labels)
    types = {name: _TYPES[name] for name in labels.columns}
    columns = pl.read_csv(data, has_header=False, separator="\t", schema=types, quote_char=None)
    if len(columns) != num_rows:
        raise DoubtfulError("Polars has not found every line")
    if not is_checked:
        _check_values(characters, columns)
    is_positive = characters[starts] == _ONE
    return RawTable(
        labels=is_positive.astype(np.float32) if labels is Labels.READ else make_unknown_labels(num_rows),
        weights=None,
        dense=[columns[name].cast(pl.Float64).to_numpy() for name in _DENSE],
        categorical=[_parse_ids(columns[name]) for name in _CATEGORICAL],
    )


def _check_form(data: bytes, characters: NDArray[np.uint8], starts: NDArray[np.int64], labels: Labels) -> None:
    """Raise DoubtfulError for a label other than 0 or 1, a wrong number of tabs, or characters that Polars overlooks.

    If the total number of tabs is right, no line can have too few columns: another one would have too many, and
    Polars refuses that.
    """
    if np.count_nonzero(characters == _TAB) != (len(labels.columns) - 1) * len(starts):
        raise DoubtfulError("some line has too few or too many columns")
    if labels is Labels.READ:
        firsts = characters[starts]
        if not np.all((firsts == _ZERO) | (firsts == _ONE)) or np.any(characters[starts + 1] != _TAB):
            raise DoubtfulError("some label is not 0 or 1")
    if any(character in data for character in (b"+", b" ", b"\r", b"\0")):
        raise DoubtfulError("characters that Polars overlooks")


def _check_values(characters: NDArray[np.uint8], columns: pl.DataFrame) -> None:
    """Raise DoubtfulError for values that Polars should have refused.

    It accepts a minus in a hexadecimal number, and numbers of any length.
    """
    num_negative = sum(int((columns[name] < 0).sum()) for name in _DENSE)
    if np.count_nonzero(characters == _MINUS) != num_negative:
        raise DoubtfulError("a minus is where none should be")
    if not all(columns[name].is_between(-_MAX_INTEGER, _MAX_INTEGER).all() for name in _DENSE):
        raise DoubtfulError("an integer is too large")
    if any((columns[name].str.len_bytes() > _MAX_ID_DIGITS).any() for name in _CATEGORICAL):
        raise DoubtfulError("an id is too long")


def _parse_ids(texts: pl.Series) -> CategoricalValues:
    ids = texts.str.to_integer(base=16, dtype=pl.UInt32, strict=False)
    if not ids.null_count():
        return encode_distinct_ids(ids.to_numpy(), None)
    if ids.null_count() != texts.null_count():
        raise DoubtfulError("an id is not hexadecimal")
    return encode_distinct_ids(ids.fill_null(0).to_numpy(), ids.is_null().to_numpy())
