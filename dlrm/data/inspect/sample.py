"""A sample of rows of files whose columns nobody has described yet."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import polars.selectors as cs

MAX_ROWS = 100_000
"""Rows that are looked at, give or take a few, spread over the files."""


@dataclass(frozen=True)
class FileSample:
    """Some rows of files that all have the same columns."""

    rows: pl.DataFrame
    """Missing values are null. Columns that hold what no schema can name are of type Null or Binary."""
    num_rows: int | None
    """Of all files; None where only reading all of them would tell."""
    types: dict[str, str]
    """By column: the type, as its files have it."""
    delimiter: str | None = None
    """Between columns of CSV."""
    has_header: bool = True


def without_nan(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with null where a float is NaN: both say that a value is missing."""
    return rows.with_columns(cs.float().fill_nan(None))


def evenly(num: int, num_wanted: int) -> Sequence[int]:
    """At most `num_wanted` of the numbers below `num`, evenly spread."""
    num_wanted = min(num, max(1, num_wanted))
    return [place * num // num_wanted for place in range(num_wanted)]
