"""Columns that give the label away, in the forms in which public click logs and tables have them."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.giveaways import find_pure_value, find_pure_value_of_lists
from dlrm.data.inspect.judge.infer import InferredSchema, infer
from dlrm.data.inspect.sample.file_sample import FileSample

N = 6000
DRAW = np.random.default_rng(1)
USER, ITEM = DRAW.integers(0, 300, N), DRAW.integers(0, 200, N)
RATES = 1 / (1 + np.exp(-(DRAW.normal(-1, 1, 300)[USER] + DRAW.normal(0, 0.7, 200)[ITEM])))
CLICK = (DRAW.random(N) < RATES).astype(np.int64)
BOUGHT = CLICK * (DRAW.random(N) < 0.15)
RATING = np.clip(np.round(2 * (RATES * 4 + 1 + DRAW.normal(0, 0.7, N))) / 2, 0.5, 5)
RARE = DRAW.random(N) < 0.05


def of(columns: dict[str, Any], **wishes: Any) -> InferredSchema:
    rows = pl.DataFrame({"user": USER, "item": ITEM, **columns}, strict=False)
    return infer(FileSample(rows, N, {name: str(kind) for name, kind in rows.schema.items()}), **wishes)


@pytest.mark.parametrize(
    ("columns", "wishes", "left_out"),
    [
        # KuaiRand, Tenrec, Ali-CCP as a log of clicks and as one of purchases, Criteo attribution.
        ({"is_click": CLICK, "is_like": BOUGHT, "play_time_ms": CLICK * 700}, {}, ["is_like", "play_time_ms"]),
        ({"click": CLICK, "follow": BOUGHT, "watching_times": CLICK * 2}, {}, ["follow", "watching_times"]),
        ({"click": CLICK, "purchase": BOUGHT}, {}, ["purchase"]),
        ({"click": CLICK, "purchase": BOUGHT}, {"label": "purchase"}, ["click"]),
        ({"click": CLICK, "conversionTimestamp": np.where(BOUGHT, np.arange(N), -1)}, {}, ["conversionTimestamp"]),
        # TalkingData, and a telephone company whose churn has a reason.
        (
            {"attributed_time": ["a" if b else None for b in BOUGHT], "is_attributed": BOUGHT},
            {},
            ["attributed_time"],
        ),
        ({"Churn Label": np.where(CLICK, "Yes", "No"), "Churn Value": CLICK}, {}, ["Churn "]),
        ({"label": CLICK, "label_2": BOUGHT}, {}, ["label_2"]),
    ],
)
def test_outcome_columns_with_one_label_alone_are_left_out_with_the_line_to_add(
    columns: dict[str, Any], wishes: dict[str, str], left_out: list[str]
) -> None:
    warned = [choice for choice in of(columns, **wishes).choices if choice.warning]
    assert all(choice.name.startswith(name) for choice, name in zip(warned, left_out, strict=True))
    assert all(choice.is_left_out for choice in warned)
    assert all(f'add {{ name = "{choice.name}", ' in choice.warning for choice in warned)


def test_what_is_only_called_an_outcome_is_kept_with_a_warning() -> None:
    # Bank marketing: `default` is a fact about the customer.
    found = of({"default": np.where(RARE, "yes", "no"), "y": np.where(CLICK, "yes", "no")})
    assert [choice.warning for choice in found.choices if not choice.is_left_out and choice.warning] == [
        "called as a label is: is it known before the label?"
    ]
    assert not any(choice.warning for choice in of({"click": CLICK, "clicks_7d": ITEM, "share": RATES}).choices)


@pytest.mark.parametrize(
    ("values", "giveaway"),
    [
        (np.where((CLICK == 0) & RARE, 3, ITEM % 3).astype(str), "has '3' in"),
        ([None if row % 9 == 0 and CLICK[row] else row % 8 + 0.5 for row in range(N)], "has a missing value in"),
        ([row // 40 if row % 9 == 0 and CLICK[row] else None for row in range(N)], "has a value in"),
        (np.where((CLICK == 1) & RARE, np.arange(N), -7), "has another value than -7 in"),
        ([[] if row % 9 == 0 and CLICK[row] else [f"t{row % 7}"] for row in range(N)], "has a missing value in"),
        ([[f"t{row % 7}", "x"] + ["won"] * 2 * int(CLICK[row] and row % 5 == 0) for row in range(N)], "has 'won' in"),
    ],
)
def test_a_value_that_occurs_with_one_label_alone_is_told(values: Any, giveaway: str) -> None:
    leaks = of({"click": CLICK, "state": values}).leaks
    assert list(leaks) == ["state"]
    assert leaks["state"].startswith(giveaway)


def test_the_limit_is_that_of_a_beta_binomial_distribution() -> None:
    # Rates of 200 values, of 1,000 rows each: mean 0.3, correlation 1 / (a + b + 1).
    a, b = 27.0, 63.0
    rates = stats.beta(a, b).ppf((np.arange(200) + 0.5) / 200)
    labels_of_values = [np.arange(1000) < ones for ones in np.round(1000 * rates)]

    def finds(num_rows: int) -> bool:
        codes = np.append(np.repeat(np.arange(200), 1000), np.full(num_rows, 200))
        labels = np.concatenate([*labels_of_values, np.zeros(num_rows, dtype=np.bool_)])
        return find_pure_value(codes, 201, labels) is not None

    sizes = np.arange(30, 400)
    least = sizes[np.argmax(stats.betabinom.logpmf(sizes, sizes, b, a) < np.log(1e-6 / 202))]
    assert next(size for size in sizes.tolist() if finds(size)) == pytest.approx(least, rel=0.05)
    # If all values had the same rate, 52 rows would be enough.
    assert least > 70


def test_honest_ids_have_no_such_value() -> None:
    assert not of({"click": CLICK}).leaks
    rare = DRAW.random(N) < 0.001
    assert find_pure_value(np.where(np.arange(N) % 2, ITEM, 0).astype(np.int64), 200, rare) is None


def test_a_row_counts_once_however_often_its_list_has_the_value() -> None:
    labels = np.tile([True, False], 100)
    lengths = np.where(np.arange(200) == 0, 40, 1).astype(np.int32)
    codes = np.append(np.zeros(40), np.ones(199)).astype(np.int64)
    assert find_pure_value_of_lists(codes, lengths, 2, labels) is None
    assert find_pure_value(codes, 2, np.repeat(labels, lengths)) is not None


@pytest.mark.parametrize(
    ("columns", "wishes", "label", "why"),
    [
        # MovieLens, KuaiRec, counts of clicks, user behaviour of Taobao.
        ({"rating": RATING, "time": ITEM}, {"positive": ">= 4"}, "rating", "by its name; >= 4 is 1, "),
        ({"rating": RATING, "gender": np.where(RARE, "F", "M")}, {"label": "rating", "positive": ">3.5"}, "rating", ""),
        ({"watch_ratio": RATES}, {"positive": "> .5"}, "watch_ratio", "by its name; > .5 is 1, "),
        ({"clicks": CLICK * ITEM}, {"positive": "> 0"}, "clicks", ""),
        ({"behavior_type": np.where(BOUGHT, "buy", np.where(RARE, "fav", "pv"))}, {"positive": "buy"}, "behavior", ""),
    ],
)
def test_ratings_shares_counts_and_kinds_become_labels_by_a_positive_value(
    columns: dict[str, Any], wishes: dict[str, str], label: str, why: str
) -> None:
    found = of(columns, **wishes)
    assert found.label.startswith(label)
    assert found.positive == wishes["positive"]
    assert found.label_why.startswith(why)


@pytest.mark.parametrize(
    ("columns", "wishes", "said"),
    [
        ({"rating": RATING}, {}, r"--label rating --positive '>= 2.5'"),
        ({"rating": RATING}, {"label": "rating"}, r"a column with two values, or --positive '>= 2.5'"),
        # A gender is no label beside ratings.
        (
            {"rating": RATING, "gender": np.where(RARE, "F", "M")},
            {},
            r"--label rating --positive '>= 2.5' or --lab",
        ),
        ({"clicks": CLICK * ITEM}, {"label": "clicks"}, r"--positive '> 0'"),
        ({"event": np.where(BOUGHT, "buy", np.where(RARE, "fav", "pv"))}, {}, r"--label event --positive buy"),
        ({"rating": RATING}, {"label": "rating", "positive": ">= 9"}, r"--positive: '>= 9' does not divide .*0.5, 1.0"),
        ({"rating": RATING}, {"label": "rating", "positive": "good"}, r"--positive: 'good' does not divide"),
        ({"grade": RATING}, {"positive": ">= 4"}, r"--positive: it is not clear which column .*--label grade"),
    ],
)
def test_where_a_positive_value_is_needed_or_wrong_one_is_suggested(
    columns: dict[str, Any], wishes: dict[str, str], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        of(columns, **wishes)
