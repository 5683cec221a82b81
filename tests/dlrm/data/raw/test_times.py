"""Parts of times, whatever the form of the times."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from dlrm.data.raw.values.times import get_time_part, parse_times
from tests.dlrm.data.raw.criteo_files import write_lines
from tests.dlrm.data.raw.plain import found, rows_of

PARTS = ("hour", "weekday", "day", "month", "year")
SCHEMA = SchemaConfig.model_validate({"categorical": [{"name": "ts", "time_part": part} for part in PARTS]})
RECENT = st.datetimes(datetime(1980, 1, 1), datetime(2099, 12, 31, 23, 59, 59))


def parts_of(moment: datetime) -> tuple[int, ...]:
    moment = moment.astimezone(UTC)
    return (moment.hour, moment.isoweekday(), moment.day, moment.month, moment.year)


def parsed(values: pa.Array) -> list[tuple[int, ...] | None]:
    seconds, is_time = parse_times(values)
    parts = np.stack([get_time_part(seconds, part) for part in PARTS], axis=1)
    return [tuple(row) if known else None for row, known in zip(parts.tolist(), is_time.tolist(), strict=True)]


def forms_of(moment: datetime) -> list[pa.Array]:
    """The same moment as a time, a text and a number, as typed and text columns hold it."""
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    units = {"s": seconds, "ms": seconds * 1000 + 999, "us": seconds * 10**6, "ns": seconds * 10**9 + 1}
    far = moment.astimezone(timezone(-timedelta(hours=9, minutes=30)))
    text = moment.replace(tzinfo=None)
    texts = [text.isoformat(), text.isoformat(" "), f"{text.isoformat()}.5Z", far.isoformat(), f"{text.isoformat()}+00"]
    return [
        *(pa.array([number], pa.int64()) for number in units.values()),
        *(pa.array([str(number)]) for number in units.values()),
        *(pa.array([number], pa.int64()).cast(pa.timestamp(unit)) for unit, number in units.items()),
        pa.array([seconds], pa.int64()).cast(pa.timestamp("s", "Asia/Kolkata")),
        pa.array([float(seconds)]),
        pa.array([Decimal(seconds)], pa.decimal128(38, 0)),
        pa.array([Decimal(f"{seconds}.25")], pa.decimal128(20, 3)),
        *(pa.array([Decimal(number)], pa.decimal128(38, 0)) for number in units.values()),
        pa.array([Decimal(seconds) + Decimal("0.5")], pa.decimal128(38, 9)),
        pa.array([f"{seconds}.25"]),
        pa.array([f"{seconds / 10**8:.8f}E8"]),
        pa.array([f"{text.isoformat(' ')}.123456 UTC"]),
        pa.array([f"{text.isoformat(' ')}.123456789 +0000 UTC"]),
        *(pa.array([text]) for text in texts),
        pa.array(texts).dictionary_encode().take(pa.array([0])),
        pa.array([text.isoformat().encode()]),
    ]


@given(RECENT)
def test_a_moment_has_the_same_parts_in_every_form(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    for values in forms_of(moment):
        assert parsed(values) == [parts_of(moment)], values


@given(st.dates(date(1, 1, 1), date(9999, 12, 31)))
def test_a_date_is_its_first_hour(day: date) -> None:
    expected = [(0, day.isoweekday(), day.day, day.month, day.year)]
    for values in (pa.array([day]), pa.array([day]).cast(pa.date64()), pa.array([day.isoformat()])):
        assert parsed(values) == expected


@given(st.dates(date(1980, 1, 1), date(2099, 12, 31)))
def test_a_number_of_year_month_and_day_is_a_date(day: date) -> None:
    expected = [(0, day.isoweekday(), day.day, day.month, day.year)]
    number = int(day.strftime("%Y%m%d"))
    for values in (pa.array([number]), pa.array([float(number)]), pa.array([str(number)])):
        assert parsed(values) == expected


def test_a_number_of_no_date_is_no_time() -> None:
    numbers = [20230229, 20240001, 20241301, 19791231, 21000101, 20240100, None]
    assert parsed(pa.array(numbers)) == [None] * len(numbers)
    assert parsed(pa.array([*numbers, 20240229]))[-1] == (0, 4, 29, 2, 2024)


def test_texts_of_different_forms_may_stand_in_one_column() -> None:
    texts = ["2024-02-29", "2024-02-29 23:30", "1709249400", "2024-03-01T01:30:00+02:00", None]
    assert parsed(pa.array(texts)) == [(0, 4, 29, 2, 2024), *[(23, 4, 29, 2, 2024)] * 3, None]


@pytest.mark.parametrize(
    "text",
    ["", "noon", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-01T24:00", "2024-01-01T10:60", "12", "-1",
     "1e19", "inf", "2024-1-1", "2024-01-01T10:00+25:00", "01/02/2024", "99999999999999999999", "\uff12024-01-01"],
)  # fmt: skip
def test_what_is_no_time_is_not_taken_for_one(text: str) -> None:
    assert parsed(pa.array([text, "2024-01-01"])) == [None, (0, 1, 1, 1, 2024)]


def of_parquet(path: Path, values: pa.Array) -> list[Any]:
    parquet.write_table(pa.table({"label": [0] * len(values), "ts": values}), path / "a.parquet")
    return [row.categorical for row in rows_of(cut_parquet_blocks(found(path / "a.parquet"), SCHEMA, 3))]


def test_csv_and_parquet_give_the_same_parts_and_missing_ones(tmp_path: Path) -> None:
    lines = ["label,ts", "0,2024-02-29T05:00:00", "1,", "0,1709182800"]
    rows = rows_of(cut_csv_blocks(found(write_lines(tmp_path / "a.csv", lines)), SCHEMA, 16))
    expected = [(5, 4, 29, 2, 2024), (None,) * 5, (5, 4, 29, 2, 2024)]
    assert [row.categorical for row in rows] == expected
    assert of_parquet(tmp_path, pa.array([1709182800.0, np.nan, 1709182800.0])) == expected
    assert of_parquet(tmp_path, pa.array(["2024-02-29T05", None, "1709182800"])) == expected
    assert of_parquet(tmp_path, pa.nulls(1)) == [(None,) * 5]


def test_a_text_that_is_no_time_is_a_bad_row_and_says_what_is_valid(tmp_path: Path) -> None:
    path = found(write_lines(tmp_path / "a.csv", ["label,ts", "0,2024-02-29", "1,noon"]))
    with pytest.raises(DataError, match=r"a\.csv, line 3, ts: 'noon' is not a time \(valid: timestamps, .* since 1970"):
        rows_of(cut_csv_blocks(path, SCHEMA))


def test_a_column_of_another_type_holds_no_times(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ts: the column's type is bool \(valid: timestamps"):
        of_parquet(tmp_path, pa.array([True]))


def test_a_column_with_a_form_of_times_takes_text_digits_and_typed_times(tmp_path: Path) -> None:
    def parts(form: str, values: pa.Array) -> list[Any]:
        categorical = [{"name": "ts", "time_part": part, "time_format": form} for part in PARTS]
        schema = SchemaConfig.model_validate({"categorical": categorical})
        parquet.write_table(pa.table({"label": [0] * len(values), "ts": values}), tmp_path / "a.parquet")
        return [row.categorical for row in rows_of(cut_parquet_blocks(found(tmp_path / "a.parquet"), schema))]

    expected = [(17, 4, 29, 2, 2024), (None,) * 5]
    for values in (
        [24022917, None],
        [Decimal(24022917), None],
        [24022917.0, np.nan],
        ["24022917", None],
        [datetime(2024, 2, 29, 17), None],
    ):
        assert parts("%y%m%d%H", pa.array(values, from_pandas=True)) == expected
    texts = pa.array(["29/Feb/2024:12:00:00 -0500", None])
    assert parts("%d/%b/%Y:%H:%M:%S %z", texts.dictionary_encode()) == expected
    categorical = [{"name": "ts", "time_part": "day", "time_format": "%d/%b/%Y"}]
    path = found(write_lines(tmp_path / "a.csv", ["label,ts", "0,29/Feb/2024", "1,30/Feb/2024"]))
    with pytest.raises(
        DataError, match=r"line 3, ts: '30/Feb/2024' is not a time of the form '%d/%b/%Y' \(valid: times"
    ):
        rows_of(cut_csv_blocks(path, SchemaConfig.model_validate({"categorical": categorical})))
