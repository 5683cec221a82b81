"""Samples of files that say what they hold in different ways."""

from pathlib import Path

import pyarrow as pa
import pytest

from dlrm.data.errors import DataError
from dlrm.data.inspect.sample_csv import sample_csv
from dlrm.data.inspect.sample_parquet import sample_parquet
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
