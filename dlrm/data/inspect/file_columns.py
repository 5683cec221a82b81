"""Columns that only some of the files have, and the one under which another file may have the same values."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MIN_SIMILARITY = 0.6
"""Least similarity of two names, by difflib, from which they may name the same column."""


@dataclass(frozen=True)
class UnsharedColumn:
    """A column that some file lacks."""

    file: str
    """First file that lacks it."""
    twin: str | None
    """Column of a similar name that this file has instead, perhaps the same one; None where there is none."""

    def __str__(self) -> str:
        twin = "" if self.twin is None else f", which has {self.twin!r}: rename one of them if they are the same"
        return f"not in {self.file}{twin}"


def find_unshared_columns(names_by_file: Mapping[str, Sequence[str]]) -> dict[str, UnsharedColumn]:
    """Find the columns that some of the files lack, by name. names_by_file: names of the columns of each file."""
    names = dict.fromkeys(name for found in names_by_file.values() for name in found)
    found: dict[str, UnsharedColumn] = {}
    for name in names:
        lacking = next((file for file, others in names_by_file.items() if name not in others), None)
        if lacking is not None:
            having = next(others for others in names_by_file.values() if name in others)
            candidates = [other for other in names_by_file[lacking] if other not in having]
            found[name] = UnsharedColumn(lacking, _find_twin(name, candidates))
    return found


def _find_twin(name: str, candidates: Sequence[str]) -> str | None:
    by_letters = {_normalise(candidate): candidate for candidate in reversed(candidates)}
    close = difflib.get_close_matches(_normalise(name), by_letters, n=1, cutoff=_MIN_SIMILARITY)
    return by_letters[close[0]] if close else None


def _normalise(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
