"""Slow and exact check of the lines of a CSV file, for blocks that the fast reader refuses."""

import re

from dlrm.config import format_count
from dlrm.data.raw.bad_rows import BadRows
from dlrm.data.raw.csv_start import get_character
from dlrm.data.raw.text import enumerate_lines, is_utf8


class CsvLineChecker:
    """Checker of lines of `num_columns` delimited values; a value may be quoted, and a quote inside it is doubled."""

    def __init__(self, delimiter: str, num_columns: int, columns_from: str) -> None:
        """Build the pattern of a value. columns_from: source of `num_columns` in messages, as in `the header has`."""
        self._delimiter, self._num_columns, self._columns_from = (
            get_character(delimiter).encode(),
            num_columns,
            columns_from,
        )
        self._shown_delimiter = delimiter
        between = re.escape(self._delimiter)
        # Possessive quantifiers: a quote that is never closed must not match as plain text.
        self._value = re.compile(rb'(?:"(?:[^"]++|"")*+"[^%b]*|[^"%b][^%b]*|)(?:%b|\Z)' % ((between,) * 4))

    def select_rows(self, data: bytes, bad: BadRows, keep_going: bool) -> bytes:
        """Select the lines that are rows, with LF as line end, and record the others in `bad`.

        keep_going: otherwise stop at the first bad line, and count all lines from there on as bad.
        """
        kept: list[bytes] = []
        for row, whole_line in enumerate_lines(data):
            line = whole_line.removesuffix(b"\r")
            fault = self._find_fault(line)
            if fault is None:
                kept.append(line)
                continue
            bad.add_one(row, None, fault)
            if not keep_going:
                bad.good[row:] = False
                break
        return b"".join(line + b"\n" for line in kept)

    def is_row(self, line: bytes) -> bool:
        """Whether `line`, given without its line end, is a row."""
        return self._find_fault(line) is None

    def _find_fault(self, line: bytes) -> tuple[str, str] | None:
        if not line:
            is_value = self._num_columns == 1
            return "the line is blank", 'one row per line; "" is a missing value' if is_value else "one row per line"
        if b"\0" in line or b"\r" in line:
            character = "a NUL byte" if b"\0" in line else "a carriage return inside the line"
            return f"holds {character}", "UTF-8 text whose lines end in LF or CR LF"
        if not is_utf8(line):
            return "not UTF-8", "UTF-8 text"
        num_columns = self._count_columns(line)
        if num_columns is None:
            return "a quoted value does not end on its line", "values without line breaks"
        if num_columns != self._num_columns:
            valid = f"{self._num_columns}, as {self._columns_from}, with {self._shown_delimiter!r} between them"
            return f"has {format_count(num_columns, 'column')}", valid
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
