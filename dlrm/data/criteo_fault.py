"""The first line of a Criteo TSV that is at fault: slow and exact, for when the fast reader has refused the file."""

import re
from pathlib import Path

from dlrm.data.criteo_shape import COLUMN_NAMES, NUM_DENSE
from dlrm.data.errors import DataError

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{1,8}")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def first_fault(path: Path) -> DataError | None:
    """The error of the first line of `path` at fault; None where every line is well formed."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            fault = _fault(text.removesuffix(b"\n").removesuffix(b"\r"))
            if fault:
                message, field, valid = fault
                return DataError(message, path, number, field, valid)
    return None


def _fault(line: bytes) -> tuple[str, str | None, str] | None:
    """Message, field and what would be valid, for a line at fault."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8", None, "plain, uncompressed UTF-8 text"
    columns = line.split(b"\t")
    if len(columns) != len(COLUMN_NAMES):
        valid = f"{len(COLUMN_NAMES)}: label, 13 integers, 26 hexadecimal categories; a blank is missing"
        return f"has {len(columns)} tab-separated columns", None, valid
    if columns[0] not in (b"0", b"1"):
        return f"{_shown(columns[0])} is not a label", "label", "0 or 1"
    for position, value in enumerate(columns[1:], start=1):
        is_dense = position <= NUM_DENSE
        if value and not (_INTEGER if is_dense else _HEXADECIMAL).fullmatch(value):
            what = "an integer" if is_dense else "a hexadecimal id"
            valid = "digits, with - in front where negative, or blank" if is_dense else "1 to 8 of 0-9 a-f, or blank"
            return f"{_shown(value)} is not {what}", COLUMN_NAMES[position], valid
    return None


def _shown(value: bytes) -> str:
    text = repr(value.decode())
    return text if len(text) <= 40 else f"{text[:37]}..."
