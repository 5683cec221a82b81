"""Sample of the rows of files that have no schema yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import polars.selectors as cs

from dlrm.data.inspect.file_columns import UnsharedColumn

SEVERAL_TYPES = "not of one type: "
"""Beginning of the reason in `FileSample.types` why a column is not used that has other types in other files."""
MAX_ROWS = 100_000
"""Approximate number of rows in a sample, spread over the files."""


@dataclass(frozen=True)
class FileSample:
    """Some rows of files, with every column of any of them."""

    rows: pl.DataFrame
    """Sampled rows, null where a value is missing. Columns that no schema can describe have type Null or Binary, and
    those that cannot be read from all training files have type Null."""
    num_rows: int
    """Number of rows of all files, or an estimate of it."""
    types: dict[str, str]
    """Type of each column in the files, or a reason such as `not in b.parquet` why it cannot be used."""
    is_estimate: bool = False
    """Whether `num_rows` is estimated from the bytes of the files."""
    bad_share: float = 0.0
    """Share of the lines read that are no rows."""
    delimiter: str | None = None
    """Delimiter of CSV; None for other formats."""
    has_header: bool = True
    missing: Sequence[str] = ()
    """Texts of CSV that stand for missing values, such as NA, in the order in which they were found."""
    unshared: Mapping[str, UnsharedColumn] = field(default_factory=dict[str, UnsharedColumn])
    """Columns that some file lacks, by name."""

    @property
    def readable(self) -> pl.DataFrame:
        """Columns that can be read from all training files."""
        names = [name for name, kind in self.types.items() if self.rows[name].dtype != pl.Null or is_usable(kind)]
        return pick_columns(self.rows, names)


def is_usable(type_name: str) -> bool:
    """Whether a value of `FileSample.types` is a type, not a reason why the column cannot be used."""
    return not type_name.startswith("not ")


def pick_columns(rows: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Pick columns by their names; `select` takes a name such as "*" or "^a$" for a pattern of names."""
    return pl.DataFrame({name: rows[name] for name in names})


def replace_nan(rows: pl.DataFrame) -> pl.DataFrame:
    """Replace NaN in columns of floats by null: both mean a missing value."""
    return rows.with_columns(cs.float().fill_nan(None))


def spread_evenly(num: int, num_chosen: int) -> Sequence[int]:
    """Choose at most `num_chosen`, and at least one, of the numbers in [0, num), evenly spread."""
    num_chosen = min(num, max(1, num_chosen))
    return [index * num // num_chosen for index in range(num_chosen)]
