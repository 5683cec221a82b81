"""Criteo files made up for tests."""

from collections.abc import Sequence
from pathlib import Path


def criteo_line(label: str = "0", dense: Sequence[str] = ("3",) * 13, ids: Sequence[str] = ("0a",) * 26) -> str:
    return "\t".join([label, *dense, *ids])


def criteo_lines(num_rows: int) -> list[str]:
    """Well-formed rows, all different, a third of them positive."""
    lines: list[str] = []
    for row in range(num_rows):
        dense = ["" if (row + column) % 5 == 0 else str(row * column - 3) for column in range(13)]
        ids = ["" if (row + column) % 7 == 0 else f"{row % (column + 2):08x}" for column in range(26)]
        lines.append(criteo_line(str(int(row % 3 == 0)), dense, ids))
    return lines


def with_value(column: int, value: str) -> str:
    """A well-formed line but for one value."""
    columns = criteo_line().split("\t")
    columns[column] = value
    return "\t".join(columns)


def write_lines(path: Path, lines: Sequence[str], newline: str = "\n") -> Path:
    path.write_bytes("".join(line + newline for line in lines).encode())
    return path
