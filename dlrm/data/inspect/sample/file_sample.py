"""Sample of the rows of files without a schema yet, and the columns that only some of the files have."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


_MIN_SIMILARITY = 0.6
"""Least similarity of two names, by difflib, from which they may name the same column."""
MAX_COMPARISONS = 4000
"""Largest number of pairs of names to compare by difflib, which takes about 50 microseconds for each."""


def find_unshared_columns(names_by_file: Mapping[str, Collection[str]]) -> dict[str, UnsharedColumn]:
    """Find the columns that some of the files lack, by name. names_by_file: names of the columns of each file."""
    sets = {file: frozenset(names) for file, names in names_by_file.items()}
    twins = _TwinSearch()
    found: dict[str, UnsharedColumn] = {}
    for name in dict.fromkeys(chain.from_iterable(names_by_file.values())):
        lacking = next((file for file, others in sets.items() if name not in others), None)
        if lacking is not None:
            having = next(file for file, others in sets.items() if name in others)
            candidates = twins.list_candidates(names_by_file, lacking, having)
            found[name] = UnsharedColumn(lacking, twins.find(name, candidates))
    return found


def find_path_columns(files: Iterable[DataFile], names: Collection[str]) -> list[str]:
    """Find the columns that paths state, as in country=US/part-0.tsv, and that are not read from them.

    names: columns that are read.
    """
    stated = dict.fromkeys(chain.from_iterable(file.path_values for file in files))
    return [name for name in stated if name not in names]


class _TwinSearch:
    """Search for columns of similar names. Beyond MAX_COMPARISONS it finds only names of the same letters and digits:
    where so many columns differ, the files do not belong together, and similar names are chance."""

    def __init__(self) -> None:
        self._candidates: dict[tuple[str, str], dict[str, str]] = {}
        self._num_comparisons = 0

    def list_candidates(
        self, names_by_file: Mapping[str, Collection[str]], lacking: str, having: str
    ) -> dict[str, str]:
        """List the columns that the file `lacking` has and the file `having` lacks, by their letters and digits."""
        pair = (lacking, having)
        if pair not in self._candidates:
            others = frozenset(names_by_file[having])
            names = [name for name in names_by_file[lacking] if name not in others]
            self._candidates[pair] = {_keep_letters(name): name for name in reversed(names)}
        return self._candidates[pair]

    def find(self, name: str, candidates: Mapping[str, str]) -> str | None:
        """Find the column whose name is most like `name`; None if none is like it."""
        letters = _keep_letters(name)
        if letters in candidates:
            return candidates[letters]
        self._num_comparisons += len(candidates)
        if self._num_comparisons > MAX_COMPARISONS:
            return None
        close = difflib.get_close_matches(letters, candidates, n=1, cutoff=_MIN_SIMILARITY)
        return candidates[close[0]] if close else None


def _keep_letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
