from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from dlrm.data.inspect.rules import Choice, choose

N = 1000
DRAW = np.random.default_rng(0)
LONG_TAIL = (DRAW.pareto(1.0, N) * 3).astype(np.int64)


def chosen(name: str, values: object, *, is_text: bool = False) -> Choice:
    return choose(pl.Series(name, values), "int64", is_text=is_text)


@pytest.mark.parametrize(
    ("name", "values", "settings"),
    [
        ("price", DRAW.normal(size=N), {"transform": "standardise"}),
        ("impressions", LONG_TAIL, {"transform": "log"}),
        ("impressions", LONG_TAIL.astype(np.float64), {"transform": "log"}),
        ("balance", LONG_TAIL - 5, {"transform": "standardise"}),
        ("age", DRAW.integers(0, 100, N), {"transform": "standardise"}),
        ("is_new", DRAW.random(N) < 0.5, {"transform": "none"}),
    ],
)
def test_numbers_that_measure_are_dense(name: str, values: object, settings: dict[str, str]) -> None:
    choice = chosen(name, values)
    assert (choice.role, choice.settings) == ("dense", settings)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("user_id", DRAW.integers(0, 300, N)),
        ("userId", DRAW.integers(0, 300, N)),
        ("zip", DRAW.integers(10_000, 99_999, N)),
        ("hour", DRAW.integers(0, 24, N)),
        ("fingerprint", DRAW.integers(-(2**62), 2**62, N)),
    ],
)
def test_integers_that_name_something_are_categorical(name: str, values: object) -> None:
    choice = chosen(name, values)
    assert (choice.role, choice.settings) == ("categorical", {"type": "integer"})


def test_texts_and_lists_are_categorical() -> None:
    texts = [f"site-{number % 7}" for number in range(N)]
    assert chosen("site", texts).settings == {"type": "string"}
    assert chosen("tags", [["a", "b"], [], None, ["a"]]).settings == {"type": "string", "multi_hot": True}
    assert chosen("ids", [[1, 2], [3]]).settings == {"type": "integer", "multi_hot": True}


def test_texts_with_separators_are_lists_in_text_files_alone() -> None:
    texts = ["a|b", "b", None, "a|c|d"]
    assert chosen("tags", texts, is_text=True).settings == {"type": "string", "multi_hot": True, "separator": "|"}
    assert chosen("tags", texts).settings == {"type": "string"}


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("version", [3] * N, "constant: 3"),
        ("nothing", [None] * N, "all values are missing"),
        ("request", [f"r{number}" for number in range(N)], "a different value in every"),
        ("request_id", np.arange(N) * 7 % 1009, "a different value in every"),
        ("row", np.arange(N), "a different value in every"),
        ("clicked_at", [datetime(2026, 1, 1) + timedelta(hours=h) for h in range(N)], "a time"),
        ("day", [f"2026-01-{day % 28 + 1:02}" for day in range(N)], "a time"),
        ("timestamp", 1_700_000_000 + DRAW.integers(0, 10**6, N), "a time"),
        ("event_time", (1_700_000_000 + DRAW.integers(0, 10**6, N)) * 1000, "a time"),
        ("embedding", [[0.1, 0.2], [0.3]], "lists of values"),
        ("user_id", DRAW.integers(0, 300, N).astype(np.float64), "written as integers"),
        ("hash", pl.Series([2**63 + 1, 5] * 50, dtype=pl.UInt64), "beyond int64"),
        (" ", [1, 2], "no name"),
    ],
)
def test_columns_that_are_useless_or_unusable_are_left_out(name: str, values: object, why: str) -> None:
    choice = chosen(name, values)
    assert choice.role == "left_out"
    assert why in choice.why


def test_integers_of_their_own_in_every_row_that_neither_ascend_nor_are_called_ids_stay() -> None:
    assert chosen("salary", DRAW.permutation(5000)[:N]).role == "dense"


def test_numbers_with_a_few_words_between_are_reported_as_numbers() -> None:
    choice = chosen("age", ["17", "35", "NA", "8", "12", "99"])
    assert choice.settings == {"type": "string"}
    assert "'NA'" in choice.why
    assert "dense" in choice.otherwise
