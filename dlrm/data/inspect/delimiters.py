"""Finds the delimiter of CSV files."""

from dlrm.data.raw.csv_start import is_comment, list_first_lines, try_split, unify_delimiter
from dlrm.data.raw.text import Lines

_USUAL = (",", "\t", ";", "|")
_OTHERS = ("||", "::", "\x01", "\x02", "\x1f", "^", "~", " ")
"""Delimiters that are taken only where the usual ones do not divide the lines."""
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
