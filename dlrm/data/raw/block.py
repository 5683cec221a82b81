"""Blocks: pieces of raw files that can be parsed in any order, on any core, and their rows, good, odd or bad."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dlrm.config import format_count
from dlrm.data.errors import DataError
from dlrm.data.raw.odd_values import OddValues

MAX_SHOWN_FAULTS = 10
"""Number of bad rows per block whose errors are kept; further bad rows are only counted."""
_MAX_SHOWN_CHARACTERS = 24


def make_unknown_labels(num_rows: int) -> NDArray[np.float32]:
    """Return NaN labels [num_rows] for rows that are read without labels, only to be scored."""
    return np.full(num_rows, np.nan, dtype=np.float32)


@dataclass(frozen=True)
class CategoricalValues:
    """One categorical column of n rows, encoded as codes into its distinct values."""

    codes: NDArray[np.int32]
    """[n], or [sum of lengths] of a multi-hot column, row by row: indices into `distinct`; -1 is a missing value."""
    distinct: pl.Series
    """Present values without duplicates, ascending: Int64 or String, or Float64 where `bucketize` is set."""
    lengths: NDArray[np.int32] | None = None
    """[n], number of values of each row of a multi-hot column; None if every row has one."""

    @property
    def num_rows(self) -> int:
        return len(self.codes if self.lengths is None else self.lengths)

    def cut(self, start: int, end: int) -> "CategoricalValues":
        """Return rows [start, end), with the same distinct values."""
        if self.lengths is None:
            return CategoricalValues(self.codes[start:end], self.distinct)
        first, last = int(self.lengths[:start].sum(dtype=np.int64)), int(self.lengths[:end].sum(dtype=np.int64))
        return CategoricalValues(self.codes[first:last], self.distinct, self.lengths[start:end])

    def count_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count in how many of the rows `numbers`, ascending, each of the distinct values occurs."""
        num_distinct = len(self.distinct)
        if self.lengths is None:
            codes = np.take(self.codes, numbers)
        else:
            is_in = np.zeros(len(self.lengths), dtype=bool)
            is_in[numbers] = True
            row_of_code = np.repeat(np.arange(len(self.lengths), dtype=np.int64), self.lengths)
            is_counted = is_in[row_of_code] & (self.codes >= 0)
            # A value counts once per row, even where the row repeats it.
            pairs = np.unique(row_of_code[is_counted] * num_distinct + self.codes[is_counted])
            codes = pairs % max(num_distinct, 1)
        return np.bincount(codes + 1, minlength=num_distinct + 1)[1:]


@dataclass(frozen=True)
class RawTable:
    """Columns of n rows, in the order of their `SchemaConfig`."""

    labels: NDArray[np.float32]
    """[n], labels 0 or 1; all NaN where rows are read without labels."""
    weights: NDArray[np.float32] | None
    """[n], finite weights of at least 0; None if the schema has no weight, or rows are read without labels."""
    dense: list[NDArray[np.float64]]
    """N columns of shape [n]; values are finite, or NaN = missing."""
    categorical: list[CategoricalValues]
    """F columns of n rows each."""
    label_values: Sequence[str] = ()
    """Some of the values of the label column, where the schema has a positive one."""
    further_labels: Sequence[NDArray[np.float32]] = ()
    """K labels of further tasks, of shape [n], NaN where missing; empty if rows are read without labels."""
    times: NDArray[np.float64] | None = None
    """[n], seconds since 1970, NaN where missing; None if the schema has no time, or rows are read without labels."""

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def cut(self, start: int, end: int) -> "RawTable":
        """Return rows [start, end); categorical columns keep the same distinct values."""
        return replace(
            self,
            labels=self.labels[start:end],
            weights=None if self.weights is None else self.weights[start:end],
            dense=[values[start:end] for values in self.dense],
            categorical=[column.cut(start, end) for column in self.categorical],
            further_labels=[labels[start:end] for labels in self.further_labels],
            times=None if self.times is None else self.times[start:end],
        )


@dataclass(frozen=True)
class Parsed:
    """The parsed rows of a block."""

    table: RawTable
    """Good rows, in the order of the block."""
    good: NDArray[np.bool_] | None = None
    """[num_rows of the block], true for rows that are in `table`; None if all are."""
    faults: list[DataError] = field(default_factory=list)
    """Errors of the first bad rows, at most MAX_SHOWN_FAULTS; each names file, line and field."""
    odd_values: OddValues = field(default_factory=OddValues)


@dataclass(frozen=True)
class Block:
    """A run of whole rows of one file. Where a file is cut into blocks depends on its bytes alone."""

    file: str
    """Name of the file for messages."""
    num_rows: int
    """Number of rows, bad ones included."""
    num_bytes: int
    """Bytes of the stored (possibly compressed) file, for progress; they add up to about the size of the file."""
    parse: Callable[[bool], Parsed]
    """Function parse(keep_going) that parses the rows: with keep_going false it raises DataError at the first bad row;
    with true it leaves bad rows out and lists them in the result."""


class BadRows:
    """The bad rows of one block. If a row has several faults, the one that was added first is kept."""

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
        """Return the parsed block. table: its good rows. odd_values: odd values of these rows."""
        if not self._shown:
            return Parsed(table, odd_values=odd_values or {})
        faults = [self._shown[row] for row in sorted(self._shown)]
        return Parsed(table, self.good, faults[:MAX_SHOWN_FAULTS], odd_values or {})


def format_value(value: object) -> str:
    """Format a value for a message, cut to _MAX_SHOWN_CHARACTERS."""
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 3]}..."


class BadRowCount:
    """Counts bad rows and checks their share once all rows are read."""

    def __init__(
        self, max_bad_fraction: float, note: Callable[[str], None], field: str = "data.max_bad_fraction"
    ) -> None:
        """Start with no rows.

        note: called with the error message of each of the first bad rows. field: field of the job document, or option,
        that sets `max_bad_fraction`, for the error.
        """
        self._max_bad_fraction, self._note, self._field = max_bad_fraction, note, field
        self._num_rows = self._num_bad_rows = 0
        self._faults: list[str] = []

    def add(self, num_rows: int, num_bad_rows: int, faults: Sequence[str]) -> None:
        """Add the counts of some rows. num_rows: bad rows included. faults: error messages of the first bad rows."""
        self._num_rows += num_rows
        self._num_bad_rows += num_bad_rows
        for fault in faults[: MAX_SHOWN_FAULTS - len(self._faults)]:
            self._faults.append(fault)
            self._note(fault)

    def check(self) -> None:
        """Raise DataError if too large a share of the rows is bad.

        Call it once all rows are added: the share in some of the rows says little about the share in all.
        """
        if self._num_bad_rows > self._max_bad_fraction * self._num_rows:
            verb = "is" if self._num_bad_rows == 1 else "are"
            share = f"{self._num_bad_rows:,} of {format_count(self._num_rows, 'row')}"
            raise DataError(
                f"{share} {verb} bad; the first is {self._faults[0]}",
                field=self._field,
                valid=f"a share of at most {self._max_bad_fraction:g}: correct the files, or allow a larger share",
            )
