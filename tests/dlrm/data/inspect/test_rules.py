import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from dlrm.data.inspect.judge.choice import Choice
from dlrm.data.inspect.judge.labelled import LabelledRows
from dlrm.data.inspect.judge.rules import choose

N = 20_000
DRAW = np.random.default_rng(0)
NOISE = DRAW.random(N) < 0.3
LONG_TAIL = (DRAW.pareto(1.0, N) * 3).astype(np.int64)
RANGES = {"bucketize": 16}
IDS = {"type": "integer"}
START = datetime(2024, 1, 1, tzinfo=UTC)


def labels_by(logits: object) -> np.ndarray:
    return DRAW.random(N) < 1.0 / (1.0 + np.exp(-np.asarray(logits)))


def effects(num_values: int) -> np.ndarray:
    """Effect of each of so many values on the logit: neighbours have nothing in common."""
    return DRAW.normal(-1.0, 0.8, num_values)


def choose_by(values: Any, labels: np.ndarray = NOISE, name: str = "x", num_rows: int = N) -> Choice:
    series = pl.Series(name, values, strict=False)
    return choose(series, "int64", LabelledRows(labels[: len(series)], num_rows))


def uses(choice: Choice) -> tuple[object, list[dict[str, str | bool | int]]]:
    return choice.dense, choice.categorical


@pytest.mark.parametrize("num_values", [30, 300, 3000])
@pytest.mark.parametrize("spread", [lambda v: v, lambda v: v * 7 + 100_000, lambda v: v * 3037000493 % 2**61 - 2**60])
def test_integers_whose_neighbours_differ_are_ids_whatever_they_are_called(
    num_values: int, spread: Callable[[Any], Any]
) -> None:
    values = DRAW.integers(0, num_values, N)
    choice = choose_by(spread(values), labels_by(effects(num_values)[values]))
    assert uses(choice) == (None, [IDS])
    assert "as ids 0." in choice.why
    assert "as a number 0." in choice.why


def test_the_auc_of_a_column_of_booleans_is_named_once() -> None:
    values = DRAW.integers(0, 2, N).astype(bool)
    choice = choose(pl.Series("x", values), "bool", LabelledRows(labels_by(values * 1.0), N))
    assert re.fullmatch(r"bool: AUC 0\.\d{3}", choice.why)


def test_quantities_are_a_number_and_ranges_of_it() -> None:
    amounts = np.exp(DRAW.normal(8.0, 1.0, N)).astype(np.int64)
    assert uses(choose_by(amounts, labels_by(np.log(amounts) - 9))) == ({"transform": "log"}, [RANGES])
    ages = DRAW.integers(18, 90, N)
    assert uses(choose_by(ages, labels_by((ages - 50.0) / 15))) == ({"transform": "standardise"}, [RANGES])
    temperatures = DRAW.normal(10.0, 5.0, N)
    assert uses(choose_by(temperatures, labels_by(-np.abs(temperatures) / 5)))[1] == [RANGES]


def test_a_named_id_is_no_number_even_where_its_ranges_predict() -> None:
    codes = DRAW.integers(10_000, 99_999, N)
    labels = labels_by((codes - 50_000) / 20_000)
    assert uses(choose_by(codes, labels, "zip")) == (None, [IDS, RANGES])


def test_few_values_are_ids_and_a_number_where_their_order_tells() -> None:
    ratings = DRAW.integers(1, 6, N)
    assert uses(choose_by(ratings, labels_by(ratings - 4.0))) == (None, [IDS])
    years = DRAW.integers(1, 21, N)
    assert uses(choose_by(years, labels_by(years / 5 - 2.0))) == ({"transform": "standardise"}, [RANGES])


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("price", DRAW.normal(size=N), ({"transform": "standardise"}, [RANGES])),
        ("views", LONG_TAIL, ({"transform": "log"}, [RANGES])),
        ("views", LONG_TAIL.astype(np.float64), ({"transform": "log"}, [RANGES])),
        ("balance", LONG_TAIL - 5, ({"transform": "standardise"}, [RANGES])),
        ("is_new", DRAW.random(N) < 0.5, ({"transform": "none"}, [])),
        ("hour", DRAW.integers(0, 24, N), (None, [IDS])),
        ("user_id", DRAW.integers(0, 3000, N), (None, [IDS])),
        ("userId", DRAW.integers(0, 3000, N), (None, [IDS])),
        ("fingerprint", DRAW.integers(-(2**62), 2**62, 3000)[DRAW.integers(0, 3000, N)], (None, [IDS])),
        ("owner", DRAW.integers(0, 3000, N), (None, [IDS])),
        ("level", np.where(DRAW.random(N) < 0.1, np.nan, DRAW.integers(0, 9, N)), (None, [RANGES])),
    ],
)
def test_looks_decide_where_nothing_predicts(name: str, values: Any, expected: object) -> None:
    series = pl.Series(name, values).fill_nan(None) if name == "level" else values
    assert uses(choose_by(series, name=name)) == expected


def test_codes_that_are_stored_as_floats_get_a_range_each() -> None:
    codes = DRAW.integers(0, 150, N)
    choice = choose_by(codes.astype(np.float64), labels_by(effects(150)[codes]))
    assert choice.categorical == [{"bucketize": 256}]


@pytest.mark.parametrize("name", ["user_id", "u"])
@pytest.mark.parametrize(
    "store",
    [
        lambda values: values * 7.0,
        lambda values: np.where(values == 5, np.nan, values * 7.0),
        lambda values: values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        lambda values: (values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.float64),
        lambda values: np.where(values == 5, np.inf, values * 7.0),
    ],
)
def test_ids_stay_ids_as_floats_and_beyond_int64(name: str, store: Callable[[Any], Any]) -> None:
    values = DRAW.integers(0, 4000, N)
    series = pl.Series(name, store(values)).fill_nan(None) if store(values).dtype == np.float64 else store(values)
    choice = choose_by(series, labels_by(effects(4000)[values] * 2), name)
    assert choice.categorical == [IDS]
    assert not choice.dense or name == "u"


def test_numbers_that_stand_for_no_value_are_missing_and_warned_of() -> None:
    prices = np.exp(DRAW.normal(0.0, 1.0, N))
    labels = labels_by(np.log(prices))
    clean = choose_by([price if row % 29 else None for row, price in enumerate(prices)], labels)
    for extreme in (np.inf, 1e39, -(2.0**63)):
        choice = choose_by(np.where(np.arange(N) % 29, prices, extreme), labels)
        assert uses(choice) == uses(clean)
        assert "690 of 20,000 values of the sample are infinite, beyond float32" in choice.warning
    ids = DRAW.integers(0, 3000, N)
    assert choose_by(np.where(ids == 5, -(2**63), ids), name="user_id").warning == ""


def test_ids_that_predict_better_and_are_not_taken_are_warned_of() -> None:
    draw = np.random.default_rng(11)
    values = np.minimum(draw.geometric(0.04, 2000), 80)
    is_positive = draw.random(2000) < 1 / (1 + np.exp(1 - draw.normal(0, 0.8, 81)[values]))
    choice = choose_by(values, is_positive, num_rows=2000)
    assert uses(choice)[1] == [RANGES]
    assert re.search(
        r'AUC of 0\.6\d\d, as chosen with 0\.\d{3}: .* use { name = "x", type = "integer" }', choice.warning
    )
    noise = choose_by(values, draw.random(2000) < 0.3, num_rows=2000)
    assert noise.warning == ""


def test_ids_that_occur_again_outside_the_sample_are_kept_and_others_left_out() -> None:
    """In a sample of a thousandth of the rows, 20 rows a value leave some 1 in 100 values with a second row."""
    num_rows = 1000 * N
    values = DRAW.integers(0, num_rows // 20, N)
    assert choose_by(values * 7919, name="user_id", num_rows=num_rows).categorical == [IDS]
    assert choose_by([f"u{value}" for value in values], num_rows=num_rows).categorical == [{"type": "string"}]
    alone = DRAW.integers(0, 2**60, N)
    assert "nearly every row has its own value" in choose_by(alone, name="user_id", num_rows=num_rows).why
    assert "a different value in every row" in choose_by([f"u{value}" for value in alone], num_rows=num_rows).why


def test_texts_and_lists_are_categorical() -> None:
    texts = [f"site-{number % 7}" for number in range(N)]
    assert uses(choose_by(texts)) == (None, [{"type": "string"}])
    assert uses(choose_by([["a", "b"], [], None, ["a"]])) == (None, [{"type": "string", "multi_hot": True}])
    for lists in ([[1, 2], [3]], [[1.0, 2.0], [3.0]], [[2**63], [3]], [[True], [False]]):
        assert uses(choose_by(lists)) == (None, [{"type": "integer", "multi_hot": True}])


def test_texts_with_separators_are_lists_in_text_files_alone() -> None:
    series = pl.Series("tags", ["a|b", "b", None, "a|c|b", "c|b", "c|a"])
    rows = LabelledRows(NOISE[:6], 6)
    expected = {"type": "string", "multi_hot": True, "separator": "|"}
    assert choose(series, "text", rows, ",").categorical == [expected]
    assert choose(series, "text", rows).categorical == [{"type": "string"}]
    # Splitting leaves more different values than there were: the character separates nothing.
    notes = pl.Series("notes", [f"a{row}|b{row}" for row in range(6)])
    assert choose(notes, "text", rows, ",").categorical == [{"type": "string"}]


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([START + timedelta(hours=5 * row) for row in range(N)], "timestamps"),
        ([f"{START + timedelta(hours=5 * row):%Y-%m-%d %H:%M:%S}" for row in range(N)], "texts"),
        ([int((START + timedelta(hours=5 * row)).timestamp() * 1000) for row in range(N)], "milliseconds"),
    ],
)
def test_of_times_the_parts_that_predict_are_used(values: list[object], form: str) -> None:
    hours = np.array([(START + timedelta(hours=5 * row)).hour for row in range(N)])
    choice = choose_by(values, labels_by(np.where(hours < 8, 1.0, -1.0)), "created_at")
    assert uses(choice) == (None, [{"time_part": "hour"}]), form
    noise = choose_by(values, NOISE, "created_at")
    assert noise.is_left_out
    assert "no part of them predicts" in noise.why


def test_a_part_whose_period_the_times_do_not_cover_is_not_used() -> None:
    values = [START + timedelta(minutes=row) for row in range(N)]
    labels = labels_by(np.arange(N) / N * 4 - 2)
    choice = choose_by(values, labels)
    assert {"time_part": "day"} not in choice.categorical
    assert {"time_part": "month"} not in choice.categorical


def test_of_dates_of_birth_the_year_is_used_where_it_predicts() -> None:
    born = np.datetime64("1940-01-01") + DRAW.integers(0, 365 * 65, N)
    texts = np.datetime_as_string(born).tolist()
    years = np.array([int(text[:4]) for text in texts])
    choice = choose_by(texts, labels_by((years - 1975) / 10), "birth_date")
    assert uses(choice) == (None, [{"time_part": "year"}])
    assert re.search(r"AUC .*, year 0\.[7-9]", choice.why)
    assert choose_by(texts, NOISE, "birth_date").is_left_out


@pytest.mark.parametrize("first", ["2024-01-01", "2023-09-01"])
def test_the_year_of_the_times_of_the_rows_themselves_is_not_used(first: str) -> None:
    """Within one year there is one value; over the turn of a year it only tells old rows from new ones."""
    times = np.datetime64(first) + np.arange(N) * 300 // N
    choice = choose_by(np.datetime_as_string(times).tolist(), labels_by(np.arange(N) / N * 8 - 4), "date")
    assert {"time_part": "year"} not in choice.categorical
    assert "year" not in choice.why


def test_times_after_the_year_9999_are_described() -> None:
    far = pl.Series("at", 10**18 + np.arange(N) * 3_600_000_000).cast(pl.Datetime("us"))
    assert "times from 33658-09-27 to" in choose(far, "timestamp[us]", LabelledRows(NOISE, N)).why


def test_whether_a_constant_is_missing_may_predict() -> None:
    is_missing = DRAW.random(N) < 0.5
    labels = labels_by(np.where(is_missing, 1.0, -1.0))
    reasons = pl.Series("x", [None if missing else "returned" for missing in is_missing])
    assert choose_by(reasons, labels).categorical == [{"type": "string"}]
    assert choose_by(reasons, NOISE).is_left_out
    assert choose_by(pl.Series("x", [None if missing else 1.5 for missing in is_missing]), labels).dense == {
        "transform": "none"
    }


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("version", [3] * N, "constant: 3"),
        ("nothing", [None] * N, "all values are missing"),
        ("request", [f"r{number}" for number in range(N)], "a different value in every"),
        ("row", np.arange(N) * 3, "a different value in every row, as row numbers"),
        ("row", DRAW.permutation(N), "a different value in every row, as row numbers"),
        ("__index_level_0__", DRAW.integers(0, 5, N), "index of a pandas table"),
        ("Unnamed: 0", DRAW.integers(0, 5, N), "index of a pandas table"),
        ("note", [f"the parcel number {row} had been left at the door" for row in range(N)], "free text"),
        ("embedding", [[0.1, 0.2], [0.3]], "not of one length"),
        ("ratio", [np.inf, 1e39] * (N // 2), "all values are infinite, beyond float32"),
        (" ", [1, 2], "no name"),
    ],
)
def test_columns_that_are_useless_or_unusable_are_left_out(name: str, values: Any, why: str) -> None:
    choice = choose_by(values, name=name)
    assert choice.is_left_out
    assert why in choice.why


def test_integers_of_their_own_in_every_row_stay_where_they_measure() -> None:
    salaries = DRAW.permutation(50 * N)[:N]
    assert choose_by(salaries, labels_by(salaries / N - 25.0)).dense is not None


def test_numbers_with_a_few_words_between_are_reported_as_numbers() -> None:
    choice = choose_by(["17", "35", "NA", "8", "12", "99"] * 20, name="age")
    assert choice.categorical == [{"type": "string"}]
    assert "'NA'" in choice.otherwise
    assert "dense" in choice.otherwise
