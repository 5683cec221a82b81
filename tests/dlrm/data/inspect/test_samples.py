"""Samples of files that say what they hold in different ways."""

import decimal
import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.data.errors import DataError
from dlrm.data.inspect.judge.infer import infer
from dlrm.data.inspect.sample.csv import sample_csv
from dlrm.data.inspect.sample.file_sample import FileSample, is_usable
from dlrm.data.inspect.sample.parquet import sample_parquet
from dlrm.data.raw.data_file import DataFile
from tests.dlrm.data.inspect.test_infer import ROWS, files, write


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


def test_parquet_rows_are_sampled_everywhere_and_keep_their_types(tmp_path: Path) -> None:
    table = pa.table({"row": range(300_000), "tag": pa.array(["a", "b"] * 150_000).dictionary_encode()})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=50_000)
    sample = sample_parquet(files(tmp_path / "a.parquet"))
    assert sample.num_rows == 300_000
    assert sample.rows.height == 100_008
    assert not sample.is_estimate
    # Neighbours are read in pairs.
    assert sample.rows["row"].to_list()[-2:] == [299_998, 299_999]
    assert sample.rows["tag"].dtype == pl.String


def test_parquet_columns_that_differ_between_files_are_left_out_with_the_file(tmp_path: Path) -> None:
    first = write(tmp_path / "a.parquet", {**ROWS, "mixed": ["1", "2", "3", "4"], "old": [1, 2, 3, 4]})
    second = write(tmp_path / "b.parquet", {**ROWS, "mixed": [1, 2, 3, 4], "price": [1, 2, 3, 4]})
    inferred = infer(sample_parquet(files(first, second)))
    choices = {choice.name: choice for choice in inferred.choices}
    assert choices["old"].why == f"not in {second}"
    assert choices["mixed"].why == f"not of one type: int64 in {second}, string in {first}"
    assert inferred.unshared == {"mixed": choices["mixed"].why, "old": choices["old"].why}
    assert choices["price"].dense is not None


def test_csv_types_are_those_of_the_values(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('click,site,price,code,n\r\n0,a,0.5,007,3\r\n1,"b",,018,-4\r\n')
    sample = sample_csv(files(path))
    assert sample.rows.schema == {
        "click": pl.Int64(),
        "site": pl.String(),
        "price": pl.Float64(),
        "code": pl.String(),
        "n": pl.Int64(),
    }
    assert sample.rows["site"].to_list() == ["a", "b"]
    assert sample.rows["price"].to_list() == [0.5, None]


def write_long_csv(path: Path, num_rows: int) -> list[DataFile]:
    lines = "".join(f"{row % 2},{row:09}{'x' if row > num_rows * 0.99 else ''}\n" for row in range(num_rows))
    content = f"y,x\n{lines}".encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return files(path)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_rows_are_counted_and_sampled_from_all_of_a_large_file(tmp_path: Path, name: str) -> None:
    sample = sample_csv(write_long_csv(tmp_path / name, 400_000))
    assert (sample.num_rows, sample.is_estimate) == (400_000, False)
    assert sample.rows["x"].dtype == pl.String
    assert 90_000 <= sample.rows.height <= 100_000
    rows = sample.rows["x"].str.slice(0, 9).cast(pl.Int64).to_numpy()
    assert len(np.unique(rows)) == len(rows)
    assert np.bincount(rows // 40_000).min() > 5000


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_of_csv_that_is_too_long_to_count_are_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("dlrm.data.inspect.sample.pieces._MAX_BYTES", 1 << 20)
    monkeypatch.setattr("dlrm.data.inspect.sample.pieces._MAX_COMPRESSED_BYTES", 200_000)
    sample = sample_csv(write_long_csv(tmp_path / name, 400_000))
    assert sample.is_estimate
    assert sample.num_rows == pytest.approx(400_000, rel=0.06)
    assert len(sample.rows) > 50_000


def test_rows_of_many_csv_files_are_estimated_from_some_of_them(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.csv").write_text("y,x\n" + "0,5\n1,7\n" * 50)
    sample = sample_csv(files(tmp_path))
    assert (sample.num_rows, sample.is_estimate) == (10_000, True)


def test_wide_integers_of_csv_are_read_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"y,signed,unsigned,long\n0,{-(2**63)},7,{2**64}\n1,{2**63 - 1},{2**64 - 1},{2**64 + 1}\n")
    rows = sample_csv(files(path)).rows
    assert rows["signed"].to_list() == [-(2**63), 2**63 - 1]
    assert rows["unsigned"].to_list() == [7, 2**64 - 1]
    assert rows["long"].to_list() == [str(2**64), str(2**64 + 1)]


@pytest.mark.parametrize("line", [b'1,"abc', b'1,"a', b"1,2,3", b"1", b"1,\xff", b"1,\0"])
def test_csv_lines_that_are_no_rows_are_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"y,x\n" + b"0,a\n1,b\n" * 300 + line + b"\n" + b"0,a\n" * 300)
    sample = sample_csv(files(path))
    assert sample.rows.height == 900
    assert sample.rows["y"].sum() == 300
    assert set(sample.rows["x"]) == {"a", "b"}


def test_compressed_csv_without_a_header_gets_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"0,3.5,a\n1,4.5,b\n"))
    sample = sample_csv(files(path))
    assert not sample.has_header
    assert sample.rows.columns == ["column_1", "column_2", "column_3"]
    assert sample.rows.height == 2


def test_csv_columns_that_a_later_file_lacks_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,x,z\n0,1,2\n")
    (tmp_path / "b.csv").write_text("z,y\n2,1\n")
    sample = sample_csv(files(tmp_path / "a.csv", tmp_path / "b.csv"))
    assert sample.types["x"] == f"not in {tmp_path / 'b.csv'}"
    assert sample.rows["y"].to_list() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"y,x,x\n0,1,2\n", r"a\.csv, line 1, x: two columns have this name"),
        ("a.csv", b"y,x\n", r"a\.csv: there are no rows"),
        ("a.csv", b"PAR1\x15\x04", r"a\.csv: is a Parquet file"),
        ("a.csv", bytes(range(128, 256)) * 20, r"a\.csv, line 1: not UTF-8"),
        ("a.csv", b"y,x\n0,\0\n1,\0\n", r"a\.csv, line 2: holds a NUL byte"),
        ("a.csv", b"y,x\n1\n0\n", r"a\.csv, line 2: has 1 column"),
    ],
)
def test_unusable_csv_is_refused_with_the_name_of_the_file(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        sample_csv(files(tmp_path / name))


def test_a_file_that_is_not_parquet_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(DataError, match=r"a\.parquet: not readable"):
        sample_parquet(files(tmp_path / "a.parquet"))
    with pytest.raises(DataError, match=r"b\.parquet: there are no rows"):
        sample_parquet(files(write(tmp_path / "b.parquet", {"x": pa.array([], pa.int64())})))


def test_parquet_types_that_no_schema_names_are_left_out_with_a_reason(tmp_path: Path) -> None:
    decimals = pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.5")] * 2, pa.decimal256(50, 2))
    columns = {
        **ROWS,
        "": [1, 2, 3, 4],
        "n" * 201: ["a", "b", "a", "b"],
        "broken": pa.Array.from_buffers(pa.string(), 4, pa.array([b"\xff\xfe", b"a", b"b", b"c"]).buffers()),
        "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
        "lists": pa.array([[[1]]] * 4),
        "struct": pa.array([{"a": 1}] * 4),
        "decimal": decimals,
        "view": pa.array(["a", "b", "a", "b"], pa.string_view()),
        "bytes": pa.array([b"a", b"b", b"b", b"b"]),
    }
    sample = sample_parquet(files(write(tmp_path / "a.parquet", columns)))
    choices = {choice.name: choice for choice in infer(sample).choices}
    left_out = {name: choice.why for name, choice in choices.items() if choice.is_left_out}
    assert set(left_out) == {"", "n" * 201, "broken", "map", "lists", "struct"}
    assert left_out["broken"] == "not UTF-8 text"
    assert "longer than 200" in left_out["n" * 201]
    assert left_out["struct"] == "not a number, a text or a list of them: struct<a: int64>"
    assert choices["decimal"].dense == {"transform": "standardise"}
    assert choices["view"].categorical == choices["bytes"].categorical == [{"type": "string"}]


def test_a_parquet_file_with_a_damaged_page_is_refused_with_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"label": [0, 1] * 500, "x": list(range(1000))})
    damaged = bytearray(path.read_bytes())
    damaged[10:300] = bytes(290)
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"a\.parquet: not readable"):
        sample_parquet(files(path))


def test_long_rows_of_parquet_are_sampled_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", {"label": [0, 1] * 500, "text": [f"{row:01000}" for row in range(1000)]})
    monkeypatch.setattr("dlrm.data.inspect.sample.parquet._MAX_BYTES", 100_000)
    monkeypatch.setattr("dlrm.data.inspect.sample.parquet._BATCH_BYTES", 10_000)
    rows = sample_parquet(files(path)).rows
    assert 80 <= rows.height <= 100
    step = 1000 // rows.height + 1
    assert rows["text"].cast(pl.Int64).to_list() == [row for row in range(1000) if row // 2 % step == 0]
