"""Slow and exact check of the lines of Criteo TSV, for blocks that the fast reader refuses."""

import re
from enum import Enum

from dlrm.config import CRITEO_SCHEMA, format_count
from dlrm.data.raw.bad_rows import BadRows, format_value
from dlrm.data.raw.hexadecimal import VALID
from dlrm.data.raw.text import enumerate_lines, is_utf8

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


def select_good_lines(data: bytes, labels: Labels, bad: BadRows, starts_file: bool, keep_going: bool) -> bytes:
    """Select the lines of `data` that are rows, and record the others in `bad`.

    starts_file: `data` begins with the first line of the file. keep_going: otherwise stop at the first bad line.
    """
    kept: list[bytes] = []
    is_row = _ROWS[labels].fullmatch
    for row, whole_line in enumerate_lines(data):
        line = whole_line.removesuffix(b"\r")
        if is_row(b"\t" + line if labels is Labels.ABSENT else line):
            kept.append(line)
            continue
        message, field, valid = _find_fault(line, labels, is_first=starts_file and row == 0)
        bad.add_one(row, field, (message, valid))
        if not keep_going:
            break
    return b"".join(line + b"\n" for line in kept)


def _find_fault(line: bytes, labels: Labels, is_first: bool) -> tuple[str, str | None, str]:
    """Find the fault of a bad line: return its message, the column at fault (None for the whole line) and the valid
    values."""
    if not line:
        return "the line is blank", None, "one row per line"
    if not is_utf8(line):
        return "not UTF-8", None, "plain UTF-8 text, or text compressed with gzip or zstd"
    columns = line.split(b"\t")
    if is_first and _WORD.fullmatch(columns[0]):
        return "the first line is a header", None, "only rows; format csv reads files with a header"
    names = labels.columns
    if len(columns) != len(names):
        description = "13 integers, 26 hexadecimal categories; a blank is a missing value"
        valid = f"{len(names)}: {'' if labels is Labels.ABSENT else 'label, '}{description}"
        # After the first line it is known whether the file has the label column.
        valid += "; or 39, without the label" if labels is Labels.IGNORED and is_first else ""
        return f"has {format_count(len(columns), 'tab-separated column')}", None, valid
    if labels is Labels.READ and columns[0] not in (b"0", b"1"):
        description = f"{format_value(columns[0].decode())} is not a label" if columns[0] else "the label is missing"
        return description, "label", "0 or 1"
    first = 0 if labels is Labels.ABSENT else 1
    for position, value in enumerate(columns[first:]):
        is_dense = position < _NUM_DENSE
        if value and not re.fullmatch(_INTEGER if is_dense else _HEXADECIMAL, value):
            description = "an integer" if is_dense else "a hexadecimal id"
            valid = "up to 18 digits, with - in front where negative, or blank" if is_dense else VALID
            return f"{format_value(value.decode())} is not {description}", names[first + position], valid
    raise AssertionError("a line without a fault is a row")
