"""Blocks: pieces of raw files that can be parsed by themselves, in any order, on any core."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlrm.data.errors import DataError
from dlrm.data.raw.table import RawTable

MAX_SHOWN_FAULTS = 10
"""Bad rows of which a block keeps the error; the others it counts."""


@dataclass(frozen=True)
class Parsed:
    """What a block holds."""

    table: RawTable
    """The good rows, in their order."""
    good: NDArray[np.bool_] | None = None
    """[num_rows of the block], which rows `table` has; None: all."""
    faults: list[DataError] = field(default_factory=list)
    """Of the first bad rows, MAX_SHOWN_FAULTS at most, each naming file, line and field."""


@dataclass(frozen=True)
class Block:
    """A run of whole rows of one file. How files are cut into blocks depends on their bytes alone."""

    file: str
    """As shown to people."""
    num_rows: int
    """Bad ones included."""
    num_bytes: int
    """Of the file as it lies on disk, for progress: over all blocks of a file about its size."""
    parse: Callable[[bool], Parsed]
    """parse(keep_going): the rows. keep_going false raises DataError at the first bad row; true leaves bad rows out and
    says which."""
