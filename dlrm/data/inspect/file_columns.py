"""Columns that only some of the files have, and the one under which another file may have the same values."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from dlrm.data.raw.data_file import DataFile

_MIN_SIMILARITY = 0.6
"""Least similarity of two names, by difflib, from which they may name the same column."""
MAX_COMPARISONS = 4000
"""Largest number of pairs of names that are compared by difflib, which takes about 50 microseconds for each."""


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
            self._candidates[pair] = {_normalise(name): name for name in reversed(names)}
        return self._candidates[pair]

    def find(self, name: str, candidates: Mapping[str, str]) -> str | None:
        """Find the column whose name is most like `name`; None if none is like it."""
        letters = _normalise(name)
        if letters in candidates:
            return candidates[letters]
        self._num_comparisons += len(candidates)
        if self._num_comparisons > MAX_COMPARISONS:
            return None
        close = difflib.get_close_matches(letters, candidates, n=1, cutoff=_MIN_SIMILARITY)
        return candidates[close[0]] if close else None


def _normalise(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
