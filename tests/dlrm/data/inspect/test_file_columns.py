"""Columns that only some of the files have."""

import difflib
from typing import Any

import pytest

from dlrm.data.inspect.sample.file_sample import MAX_COMPARISONS, find_unshared_columns


class ScannedOnce(list[str]):
    """Names of columns that may be read in order, and not searched: a search of a list takes as long as the list."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(f"{name!r} is searched for in a list")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Pairs of names that difflib is given."""
    pairs: list[tuple[str, str]] = []
    find = difflib.get_close_matches

    def find_and_note(word: str, possibilities: Any, **options: Any) -> list[str]:
        pairs.extend((word, other) for other in possibilities)
        return find(word, possibilities, **options)

    monkeypatch.setattr(difflib, "get_close_matches", find_and_note)
    return pairs


def test_names_of_columns_are_not_searched_in_lists() -> None:
    files = {f"{number}.parquet": ScannedOnce(["label", "age", f"only_{number}"]) for number in range(3)}
    found = find_unshared_columns(files)
    assert {name: column.file for name, column in found.items()} == {
        "only_0": "1.parquet",
        "only_1": "0.parquet",
        "only_2": "0.parquet",
    }


def test_a_column_of_a_similar_name_is_its_twin() -> None:
    found = find_unshared_columns({"a.csv": ["label", "site_id"], "b.csv": ["label", "siteId", "site_ids"]})
    assert {name: (column.file, column.twin) for name, column in found.items()} == {
        "site_id": ("b.csv", "siteId"),
        "siteId": ("a.csv", "site_id"),
        "site_ids": ("a.csv", "site_id"),
    }


def test_of_many_columns_that_differ_only_so_many_names_are_compared(compared: list[tuple[str, str]]) -> None:
    first, second = ([f"{word}_{number}" for number in range(500)] for word in ("clicks", "views"))
    found = find_unshared_columns({"a.csv": [*first, "last_one"], "b.csv": [*second, "lastOne"]})
    assert len(found) == 1002
    assert found["last_one"].twin == "lastOne"
    assert 0 < len(compared) <= MAX_COMPARISONS
