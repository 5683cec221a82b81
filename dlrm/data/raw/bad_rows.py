"""Collection of the bad rows of one block."""

from collections.abc import Callable
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.raw.block import MAX_SHOWN_FAULTS, Parsed
from dlrm.data.raw.odd_values import OddValues
from dlrm.data.raw.table import RawTable

_MAX_SHOWN_CHARACTERS = 24


class BadRows:
    """The bad rows of one block. Where a row has several faults, the one that was added first is kept."""

    def __init__(self, file: str | None, first_line: int, num_rows: int) -> None:
        """Start with `num_rows` good rows.

        file: its name for messages; None for rows in memory. first_line: number of the block's first line in the file,
        counted from 1; for rows in memory the number of the first row, counted from 0.
        """
        self.good = np.ones(num_rows, dtype=np.bool_)
        """[num_rows], true for rows without a fault so far."""
        self._file, self._first_line = file, first_line
        self._shown: dict[int, DataError] = {}

    @property
    def any(self) -> bool:
        return bool(self._shown)

    def add(self, rows: NDArray[np.int64], field: str | None, describe: Callable[[int], tuple[str, str]]) -> None:
        """Record a fault in column `field` for each of `rows` [k], ascending row numbers within the block.

        describe(i): returns the message and the valid values for rows[i]; called only for rows whose error is kept.
        """
        is_new = self.good[rows]
        for index in np.flatnonzero(is_new)[:MAX_SHOWN_FAULTS].tolist():
            row = int(rows[index])
            if len(self._shown) >= MAX_SHOWN_FAULTS and row > max(self._shown):
                break
            message, valid = describe(index)
            number = self._first_line + row
            if self._file is None:
                self._shown[row] = DataError(message, field=field, valid=valid, row=number)
            else:
                self._shown[row] = DataError(message, self._file, number, field, valid)
        self.good[rows] = False

    def add_one(self, row: int, field: str | None, description: tuple[str, str]) -> None:
        """Record a fault of one row, like `add`. description: message and valid values."""
        if len(self._shown) < MAX_SHOWN_FAULTS:
            self.add(np.array([row]), field, lambda _: description)
        else:
            self.good[row] = False

    def raise_first(self) -> None:
        """Raise the DataError of the first bad row, if there is one."""
        if self._shown:
            raise self._shown[min(self._shown)]

    def make_parsed(self, table: RawTable, odd_values: OddValues | None = None) -> Parsed:
        """Return the parsed block. table: its good rows. odd_values: those of its good rows."""
        if not self._shown:
            return Parsed(table, odd_values=odd_values or {})
        faults = [self._shown[row] for row in sorted(self._shown)]
        return Parsed(table, self.good, faults[:MAX_SHOWN_FAULTS], odd_values or {})


def format_value(value: object) -> str:
    """Format a value for a message, cut to _MAX_SHOWN_CHARACTERS."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 3]}..."
