"""Samples of files that say what they hold in different ways."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.inspect.sample.file_sample import FileSample, is_usable
from dlrm.data.inspect.sample.parquet import sample_parquet
from tests.dlrm.data.inspect.test_infer import files, write


def test_a_column_that_one_file_has_without_values_or_in_another_unit_is_read(tmp_path: Path) -> None:
    """Writers store a column without any value, or without a unit of time, as each of them likes."""
    now = pa.array([1_600_000_000 + 86_400 * day for day in range(8)])
    whole = {
        "coupon": ["a", "b"] * 4,
        "seen": now.cast(pa.timestamp("s")).cast(pa.timestamp("us")),
        "tags": [["x"]] * 8,
    }
    bare = {
        "coupon": pa.nulls(8),
        "seen": now.cast(pa.timestamp("s")).cast(pa.timestamp("ms")),
        "tags": pa.array([["y"]] * 8, pa.list_(pa.field("item", pa.large_string()))),
    }
    label = {"label": [0, 1] * 4}
    paths = [write(tmp_path / f"{number}.parquet", label | columns) for number, columns in enumerate((whole, bare))]
    for order in (paths, paths[::-1]):
        sample = sample_parquet(files(*order))
        assert sample.rows.height == 16
        assert sample.rows["coupon"].drop_nulls().to_list() == ["a", "b"] * 4
        assert sample.rows["seen"].null_count() == 0
        assert sorted(tag for (tag,) in sample.rows["tags"].to_list()) == ["x"] * 8 + ["y"] * 8


def of_days(directory: Path, *days: pa.Array) -> FileSample:
    """Sample of a file for each day, with these values."""
    parts = [dict[str, object](label=[0, 1] * (len(day) // 2), x=day) for day in days]
    return sample_parquet(files(*(write(directory / f"{number}.parquet", part) for number, part in enumerate(parts))))


IDS = [2**53 + 1, 7, 7, 8]
TIMES = pa.array([1_600_000_000, 1_700_000_000] * 2)
SITES = pa.array(["a", "b", "a", "b"])


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array(IDS), pa.array([7.0, None, 8.0, 9.0]), pl.Float64),
        (pa.array(IDS), pa.array([7.5, None, 8.0, 9.0]), pl.Float64),
        (pa.array(IDS), pa.array(IDS, pa.decimal128(38, 0)), pl.Int64),
        (pa.array(IDS), pa.array(IDS, pa.uint64()), pl.Int64),
        (pa.array([-1, 2, 3, 4]), pa.array([2**63, 2, 3, 4], pa.uint64()), pl.String),
        (pa.array([1, 2, 3, 4]), pa.array([2**64 - 1, 2, 3, 4], pa.uint64()), pl.UInt64),
        (pa.array([1, 2, 3, 4]), pa.array([2**64 - 1, 2, 3, 4], pa.decimal256(50, 0)), pl.UInt64),
        (pa.array(IDS), pa.array([10**30, 2, 3, 4], pa.decimal128(38, 0)), pl.String),
        (pa.array(IDS), pa.array([1, 2, 3, 4], pa.decimal128(38, 10)), pl.Float64),
        (pa.array([0, 1, 0, 1]), pa.array([True, False] * 2), pl.Int64),
        (pa.array([0.0, 1.0, 0.0, None]), pa.array([True, False] * 2), pl.Float64),
        (pa.array([True, False] * 2), pa.array([True, False] * 2).dictionary_encode(), pl.Boolean),
        (TIMES.cast(pa.timestamp("s", "UTC")), TIMES.cast(pa.timestamp("s")), pl.Datetime("ms")),
        (TIMES.cast(pa.timestamp("s", "UTC")), TIMES.cast(pa.timestamp("s", "Asia/Tokyo")), pl.Datetime("ms")),
        (TIMES.cast(pa.timestamp("s")), TIMES.cast(pa.timestamp("s")).cast(pa.date32()), pl.Datetime("ms")),
        (SITES, SITES.cast(pa.large_string()).dictionary_encode(), pl.String),
        (SITES.cast(pa.string_view()), SITES.cast(pa.binary()), pl.String),
        (SITES, SITES.cast(pa.binary()).cast(pa.binary(1)), pl.String),
        (SITES, pa.array([bytes(16)] * 4, pa.uuid()), pl.String),
        (pa.array([[1], [2], [], [3]]), pa.array([[1.0], [2.0], [], None]), pl.List(pl.Float64)),
        (pa.array([[1]] * 4, pa.list_(pa.decimal128(38, 0))), pa.array([[True]] * 4), pl.List(pl.Int64)),
    ],
)
def test_types_of_one_family_are_one_type_across_files(
    tmp_path: Path, first: pa.Array, second: pa.Array, kind: pl.DataType
) -> None:
    for days in ((first, second), (second, first)):
        sample = of_days(tmp_path, *days)
        assert is_usable(sample.types["x"])
        assert sample.rows["x"].dtype == kind
        assert sample.rows["x"].null_count() == sum(day.null_count for day in days)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (SITES, pa.array(IDS), "int64 in {1}, string in {0}"),
        (TIMES, TIMES.cast(pa.timestamp("s")), "int64 in {0}, timestamp[ms] in {1}"),
        (pa.array([[1]] * 4), pa.array(IDS), "int64 in {1}, list<element: int64> in {0}"),
        (pa.array([["a"]] * 4), pa.array([[1]] * 4), "list<element: int64> in {1}, list<element: string> in {0}"),
    ],
)
def test_types_that_differ_are_named_with_a_file_of_each(
    tmp_path: Path, first: pa.Array, second: pa.Array, why: str
) -> None:
    paths = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    assert of_days(tmp_path, first, second).types["x"] == f"not of one type: {why.format(*paths)}"


@pytest.mark.parametrize(
    ("first", "row", "has_header"),
    [
        ("0,1,2,label", "5.1,3.5,1.4,{}", True),
        ("id,2019,2020,churn", "{},1,2,0", True),
        ("1,red,2.5", "{},blue,3.5", False),
        ("1,NA,2.5", "{},7,3.5", False),
        ("0,?,2.5", "{},7,3.5", False),
        ("a,b,c", "{},7,x", True),
    ],
)
def test_a_header_may_have_numbers_and_a_first_row_words(
    tmp_path: Path, first: str, row: str, has_header: bool
) -> None:
    (tmp_path / "rows.csv").write_text("\n".join([first, *(row.format(number % 2) for number in range(30))]) + "\n")
    sample = sample_csv(files(tmp_path / "rows.csv"))
    assert sample.has_header is has_header
    assert sample.rows.columns == (
        first.split(",") if has_header else [f"column_{n + 1}" for n in range(first.count(",") + 1)]
    )


def test_a_line_that_cannot_be_read_tells_nothing_of_a_header(tmp_path: Path) -> None:
    lines = ["0,red,2", '1,"a\rb",2', *(f"{number % 2},blue,{number}" for number in range(30))]
    (tmp_path / "rows.csv").write_bytes("\n".join([*lines, ""]).encode())
    assert not sample_csv(files(tmp_path / "rows.csv")).has_header


@pytest.mark.parametrize(("share", "is_refused"), [(0.02, True), (0.005, False)])
def test_a_file_in_another_encoding_is_refused_and_single_damaged_lines_are_not(
    tmp_path: Path, share: float, is_refused: bool
) -> None:
    lines = [f"{row % 2},{'Zürich' if row < share * 1000 else 'Bern'}".encode("latin1") for row in range(1000)]
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([b"label,city", *lines, b""]))
    if is_refused:
        with pytest.raises(DataError, match=r"a\.csv: 2\.00% of the lines are not UTF-8.*iconv"):
            sample_csv(files(path))
    else:
        assert sample_csv(files(path)).bad_share == share


def test_booleans_of_text_are_booleans_and_beside_0_and_1_these(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("label,flag,code,known\n" + "True,1,1,True\nFalse,,true,FALSE\n" * 20)
    (tmp_path / "2.csv").write_text("label,flag,code,known\n" + "1.0,FALSE,2,\n0, true,3,false\n" * 20)
    rows = sample_csv(files(tmp_path / "1.csv", tmp_path / "2.csv")).rows
    assert rows["label"].to_list() == [1, 0] * 40
    assert rows["flag"].to_list() == [1, None] * 20 + [0, 1] * 20
    assert rows["code"].dtype == pl.String
    assert rows["known"].to_list() == [True, False] * 20 + [None, False] * 20
