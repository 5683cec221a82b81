"""Times and numbers as other programs write them: inference finds their form, and the reader reads it."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.choice import Choice
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.plain import found, rows_of

N = 600
DRAW = np.random.default_rng(0)
MOMENTS = [datetime(2023, 1, 20, tzinfo=UTC) + timedelta(minutes=int(number)) for number in DRAW.integers(0, 80_000, N)]
LATE = np.array([moment.hour >= 16 for moment in MOMENTS])
PRICES = np.exp(DRAW.normal(6.0, 1.5, N)).round(2)
DEAR = np.median(PRICES) < PRICES


def judge(path: Path, texts: list[str], is_likely: Any, name: str = "seen", between: str = ",") -> Choice:
    """Infer the use of a column of texts in CSV, beside a label that it predicts."""
    labels = (DRAW.random(len(texts)) < np.where(is_likely, 0.8, 0.2)).astype(int)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=between).writerows([["label", name], *zip(labels, texts, strict=True)])
    return infer(sample_csv([found(path)])).choices[0]


def read(path: Path, choice: Choice, between: str = ",", missing: tuple[str, ...] = ()) -> list[Any]:
    """Read the first feature of a column by the schema that was inferred."""
    role, settings = ("categorical", choice.categorical[0]) if choice.dense is None else ("dense", choice.dense)
    fields = {"delimiter": between, "missing": list(missing), role: [{"name": choice.name, **settings}]}
    rows = rows_of(cut_csv_blocks(found(path), SchemaConfig.model_validate(fields)))
    return [(row.dense or row.categorical)[0] for row in rows]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("%b %d %Y  %I:%M%p", "%b %d %Y %I:%M%p"),
        ("%b %d %Y %I:%M:%S:%f%p", "%b %d %Y %I:%M:%S:%f%p"),
        ("%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Y"),
        ("%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S %z %Y"),
        ("%a, %d %b %Y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S %z"),
        ("%d-%b-%y %I.%M.%S.%f %p", "%d-%b-%y %I.%M.%S %p"),
        ("%Y-%m-%d-%H.%M.%S.%f", "%Y-%m-%d-%H.%M.%S"),
        ("%d%b%Y:%H:%M:%S", "%d%b%Y:%H:%M:%S"),
        ("%d/%m/%y %H:%M", "%d/%m/%y %H:%M"),
        ("%y/%m/%d %H:%M", "%y/%m/%d %H:%M"),
        ("%d-%m-%Y %H:%M:%S", "%d-%m-%Y %H:%M:%S"),
        ("%H:%M %d/%m/%Y", "%H:%M %d/%m/%Y"),
        ("%B %d, %Y, %I:%M:%S\u202f%p", "%b %d, %Y, %I:%M:%S %p"),
        ("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)", "%a %b %d %Y %H:%M:%S GMT%z (%Z)"),
        ("%Y-%m-%dT%H:%M:%SZ[UTC]", "%Y-%m-%dT%H:%M:%S%z[%Z]"),
        ("[%d/%b/%Y:%H:%M:%S +0000]", "[%d/%b/%Y:%H:%M:%S %z]"),
        ("%b %d %H:%M:%S", "%b %d %H:%M:%S"),
        ("%Y%m%d%H", "%Y%m%d%H"),
        ("%y%m%d%H%M%S", "%y%m%d%H%M%S"),
        ("%y%m%d%H.0", "%y%m%d%H"),
        ("%Y-%m-%d %H:%M:%S.123 UTC", None),
    ],
)
@pytest.mark.parametrize("word", ["", "NULL"])
def test_times_of_other_programs_are_read_in_the_form_that_the_rows_have(
    tmp_path: Path, written: str, expected: str | None, word: str
) -> None:
    path = tmp_path / "a.csv"
    texts = [moment.strftime(written) for moment in MOMENTS]
    texts[7] = word
    choice = judge(path, texts, LATE)
    form = {} if expected is None else {"time_format": expected}
    assert {"time_part": "hour", **form} in choice.categorical
    hours = [None if row == 7 else moment.hour for row, moment in enumerate(MOMENTS)]
    assert read(path, choice, missing=("NULL",)) == hours


def test_times_of_the_same_form_are_no_copies_of_each_other(tmp_path: Path) -> None:
    texts = [
        [(time + timedelta(seconds=row / by)).isoformat() for row, time in enumerate(MOMENTS)] for by in (1e3, 2e3)
    ]
    labels = (DRAW.random(N) < np.where(LATE, 0.8, 0.2)).astype(int)
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["label", "seen", "again", "copy"], *zip(labels, *texts, texts[0], strict=True)])
    choices = infer(sample_csv([found(tmp_path / "a.csv")])).choices
    assert [choice.categorical for choice in choices] == [[{"time_part": "hour"}], [{"time_part": "hour"}], []]
    assert choices[2].why == "the same content as 'seen' in every row"


@pytest.mark.parametrize(
    ("numbers", "warning"),
    [
        ([0, *(int(moment.timestamp()) for moment in MOMENTS[1:])], "no times, such as 0: leave such values blank"),
        ([45_000 + row % 300 for row in range(N)], "may be days since 1900, as spreadsheets count"),
        ([row % 300 for row in range(N)], "^$"),
    ],
)
def test_numbers_that_are_called_times_and_are_not_all_are_warned_of(
    tmp_path: Path, numbers: list[int], warning: str
) -> None:
    choice = judge(tmp_path / "a.csv", [str(number) for number in numbers], LATE, "created_at")
    assert pl.Series([choice.warning]).str.contains(warning, literal=warning != "^$").all(), choice.warning


def swap(text: str) -> str:
    return text.translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    ("write", "mark"),
    [
        (lambda price: swap(f"{price:,.2f} €"), ","),
        (lambda price: swap(f"R$ {price:,.2f}"), ","),
        (lambda price: swap(f"{price:.2f}").replace(",00", ""), ","),
        (lambda price: swap(f"{price:,.2f}").replace(".", "\u202f"), ","),
        (lambda price: f"{price:,.2f}".replace(",", "'"), "."),
        (lambda price: f"({price:,.2f})" if price > 400 else f"{price:,.2f}", "."),
        (lambda price: f"{price - 400:.2f}".replace("-", "\u2212"), "."),
        (lambda price: swap(f"{price:,.2f}") + ("-" if price > 400 else ""), ","),
        (lambda price: f"{price:.2f} %", "."),
        (lambda price: f"USD {price:,.2f}", "."),
        (lambda price: f"{int(price):_}", "."),
        (lambda price: swap(f"{int(price):,}"), ","),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them_are_numbers(tmp_path: Path, write: Callable[[float], str], mark: str) -> None:
    path = tmp_path / "a.csv"
    texts = [write(price) for price in PRICES]
    texts[7] = "-"
    choice = judge(path, texts, DEAR, "price")
    assert choice.dense is not None
    assert choice.dense["decimal_mark"] == mark
    assert {"bucketize": 16, "decimal_mark": mark} in choice.categorical
    plain = [
        float(
            "".join(letter for letter in (swap(text) if mark == "," else text) if letter in "0123456789.") or "nan",
        )
        * (-1 if text[0] in "(\u2212" or text[-1] == "-" else 1)
        for text in texts
    ]
    values = [np.nan if value is None else value for value in read(path, choice, missing=("-",))]
    np.testing.assert_array_equal(values, plain)


@pytest.mark.parametrize(
    ("texts", "warning"),
    [
        ([f"{month:02}/{day:02}/2024 9:30" for month in (1, 2) for day in range(1, 13)], "%d/%m/%Y %H:%M or %m/%d/%Y"),
        ([f"{day}.1.2024" for day in range(1, 32)] + ["soon"], "no times of the form %d.%m.%Y, such as 'soon'"),
        ([f"2024-01-{day:02} 17:05 PST" for day in range(1, 32)], "names a zone that has no fixed offset"),
        ([f"{number // 60:02}:{number % 60:02}" for number in range(600)], "may be a time of day"),
        ([f"{day}. janvier 2024 17:05" for day in range(1, 32)], "no known form reads all"),
        ([f"25/01/2024 à 14h{minute:02}" for minute in range(60)], "no known form reads all"),
        ([f"1/{day}/2024" if day % 2 else f"2024-1-{day}" for day in range(1, 32)], "no known form reads all"),
        ([f"1,{number}" for number in range(200, 300)], "may be 1200 or 1.2: in data.schema.dense"),
        ([f"{number % 9 + 1},{number % 41 + 1}" for number in range(99)], "may be a number or a list of two"),
        ([f"555 {number}" for number in range(200, 300)], "a name of several parts"),
        ([f"{'$€'[number % 2]}{number}" for number in range(99)], "numbers of several units"),
        ([f"{number}%" if number % 2 else f"0.{number}" for number in range(10, 99)], "only some texts have %"),
        ([f"${number}" for number in range(99)] + ["free"], "no numbers, such as 'free'"),
        ([f"{number / 10}" for number in range(99)] + ["EUR"], "no numbers, such as 'EUR'"),
        ([f"{number / 10}K" for number in range(99)], "are numbers of a form that is not read"),
        ([f"${number}K" for number in range(99)], "are numbers of a form that is not read"),
        ([f"<{number}" for number in range(99)], "are numbers of a form that is not read"),
        ([f"+49151{number}" for number in range(200, 300)], "^$"),
        ([f"INV-2024-01-0{number}" for number in range(200, 300)], "^$"),
        ([f"site-{number % 9}" for number in range(99)], "^$"),
        ([f"{number:05}" for number in range(99)], "^$"),
        ([f"1.{number % 9}.{number % 7}" for number in range(99)], "^$"),
    ],
)
def test_what_is_in_doubt_stays_text_with_a_warning(tmp_path: Path, texts: list[str], warning: str) -> None:
    choice = judge(tmp_path / "a.csv", texts * 9, True, "x")
    assert all(settings["type"] == "string" for settings in choice.categorical)
    assert pl.Series([choice.warning]).str.contains(warning, literal=warning != "^$").all(), choice.warning


def test_an_unreadable_written_number_is_a_bad_row_naming_the_decimal_mark(tmp_path: Path) -> None:
    column = [{"name": "price", "decimal_mark": ","}]
    path = tmp_path / "a.csv"
    for text in ("12.50", "1,2,3", "(5"):
        path.write_text(f"label;price\n0;12,50\n1;{text}\n", encoding="utf-8")
        schema = SchemaConfig.model_validate({"delimiter": ";", "dense": column})
        with pytest.raises(DataError, match=r"a\.csv, line 3, price: '.*' is not a number with the decimal mark ','"):
            rows_of(cut_csv_blocks(found(path), schema))


def test_a_column_of_written_numbers_takes_typed_numbers_and_text(tmp_path: Path) -> None:
    uses = {"name": "price", "decimal_mark": ","}
    schema = SchemaConfig.model_validate({"dense": [uses]})
    texts = pa.array(["12,50", None, "1.234", " "])
    for values in (pa.array([12.5, None, 1234.0, np.nan]), texts, texts.dictionary_encode(), texts.cast(pa.binary())):
        parquet.write_table(pa.table({"label": [0, 1, 0, 1], "price": values}), tmp_path / "a.parquet")
        rows = rows_of(cut_parquet_blocks(found(tmp_path / "a.parquet"), schema))
        assert [row.dense[0] for row in rows] == [12.5, None, 1234.0, None]
