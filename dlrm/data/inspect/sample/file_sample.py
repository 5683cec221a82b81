"""Sample of the rows of files without a schema yet, and the columns that only some of the files have."""

import difflib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

import polars as pl
import polars.selectors as cs

from dlrm.data.raw.data_file import DataFile

SEVERAL_TYPES = "not of one type: "
"""Beginning of the reason in `FileSample.types` why a column is not used that has other types in other files."""
MAX_ROWS = 100_000
"""Approximate number of rows in a sample, spread over the files."""


@dataclass(frozen=True)
class UnsharedColumn:
    """A column that some file lacks."""

    file: str
    """First file that lacks it."""
    twin: str | None
    """Column of a similar name that this file has instead, perhaps the same one; None if absent."""

    def __str__(self) -> str:
        twin = "" if self.twin is None else f", which has {self.twin!r}: rename one of them if they are the same"
        return f"not in {self.file}{twin}"


@dataclass(frozen=True)
class FileSample:
    """Some rows of files, with every column of any of them."""

    rows: pl.DataFrame
    """Sampled rows, null if a value is missing. Columns that no schema can describe have type Null or Binary;
    columns that cannot be read from all training files have type Null."""
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
    """Texts of CSV that stand for missing values, such as NA, in the order found."""
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


HANDFUL_SHARE = 0.8
"""Share of a handful of distinct values that a form must fit before it is tried on all."""
MOST = 0.9
"""Share of one form among the distinct values from which the others are reported as exceptions."""
_HANDFUL = 32


def pick_handful(distinct: pl.Series) -> pl.Series:
    """Pick a handful of distinct values that forms are tried on before they are tried on all."""
    return distinct.gather([*spread_evenly(len(distinct), _HANDFUL)])


def format_entry(name: str, settings: Mapping[str, object]) -> str:
    """Format the entry of a schema for a column with these settings."""
    fields = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in {"name": name, **settings}.items())
    return f"{{ {', '.join(fields)} }}"


_MIN_SIMILARITY = 0.6
"""Least similarity of two names, by difflib, from which they may name the same column."""
MAX_COMPARISONS = 4000
"""Largest number of pairs of names to compare by difflib, which takes about 50 microseconds for each."""


def find_unshared_columns(names_by_file: Mapping[str, Collection[str]]) -> dict[str, UnsharedColumn]:
    """Find the columns that some of the files lack, by name. names_by_file: names of the columns of each file.

    Beyond MAX_COMPARISONS only names of the same letters and digits are similar: if so many columns differ, the files
    do not belong together, and similar names are chance.
    """
    sets = {file: frozenset(names) for file, names in names_by_file.items()}

    @cache
    def list_candidates(lacking: str, having: str) -> dict[str, str]:
        """List the columns that the file `lacking` has and the file `having` lacks, by their letters and digits."""
        names = [name for name in names_by_file[lacking] if name not in sets[having]]
        return {_keep_letters(name): name for name in reversed(names)}

    found: dict[str, UnsharedColumn] = {}
    num_comparisons = 0
    for name in dict.fromkeys(chain.from_iterable(names_by_file.values())):
        lacking = next((file for file, others in sets.items() if name not in others), None)
        if lacking is None:
            continue
        candidates = list_candidates(lacking, next(file for file, others in sets.items() if name in others))
        letters = _keep_letters(name)
        twin = candidates.get(letters)
        if twin is None:
            num_comparisons += len(candidates)
        if twin is None and num_comparisons <= MAX_COMPARISONS:
            close = difflib.get_close_matches(letters, candidates, n=1, cutoff=_MIN_SIMILARITY)
            twin = candidates[close[0]] if close else None
        found[name] = UnsharedColumn(lacking, twin)
    return found


def find_path_columns(files: Iterable[DataFile], names: Collection[str]) -> list[str]:
    """Find the columns that paths state, as in country=US/part-0.tsv, and that are not read from them.

    names: columns that are read.
    """
    stated = dict.fromkeys(chain.from_iterable(file.path_values for file in files))
    return [name for name in stated if name not in names]


def _keep_letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
