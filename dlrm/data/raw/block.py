"""Blocks: pieces of raw files that can be parsed independently, in any order, on any core."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.raw.odd_values import OddValues
from dlrm.data.raw.table import RawTable

MAX_SHOWN_FAULTS = 10
"""Number of bad rows per block whose errors are kept; further bad rows are only counted."""


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
