import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import VocabularyConfig
from dlrm.data.criteo import CriteoRows, read_criteo
from dlrm.data.errors import DataError
from tests.dlrm.data.criteo_files import criteo_line, criteo_lines, write_lines

REAL = Path(__file__).parents[4] / "shared" / "data" / "criteo_head" / "criteo_kaggle_first10000.tsv"


def with_column(name_position: int, value: str) -> str:
    columns = criteo_line().split("\t")
    columns[name_position] = value
    return "\t".join(columns)


def parsed_plainly(lines: list[str]) -> tuple[list[float], list[list[float]], list[list[int | None]]]:
    """Labels, dense values and categories, by the definition."""
    columns = [line.split("\t") for line in lines]
    dense = [[-1.0 if x == "" else math.log1p(max(int(x), 0)) for x in row[1:14]] for row in columns]
    ids = [[None if x == "" else int(x, 16) for x in row[14:]] for row in columns]
    return [float(row[0]) for row in columns], dense, ids


def check_equal_to_plain(rows: CriteoRows, lines: list[str]) -> None:
    labels, dense, ids = parsed_plainly(lines)
    assert rows.labels.tolist() == labels
    np.testing.assert_allclose(rows.dense, np.array(dense), rtol=1e-6)
    assert [list(row) for row in zip(*(column.to_list() for column in rows.categories), strict=True)] == ids


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_rows_are_read_as_they_are_written(tmp_path: Path, newline: str) -> None:
    lines = criteo_lines(50)
    path = write_lines(tmp_path / "a.tsv", lines, newline)
    check_equal_to_plain(read_criteo([path]), lines)


def test_a_last_line_needs_no_newline_and_its_last_field_may_be_blank(tmp_path: Path) -> None:
    lines = [criteo_line(), criteo_line("1", ids=["ff"] * 25 + [""])]
    path = tmp_path / "a.tsv"
    path.write_text("\r\n".join(lines))
    check_equal_to_plain(read_criteo([path]), lines)


def test_missing_is_minus_one_and_no_present_value_is(tmp_path: Path) -> None:
    lines = [criteo_line(dense=["", "-3", "0", "1"] + ["5"] * 9)]
    rows = read_criteo([write_lines(tmp_path / "a.tsv", lines)])
    assert rows.dense[0, :3].tolist() == [-1.0, 0.0, 0.0]
    assert rows.dense[0, 3] == np.float32(math.log(2))


def test_files_follow_each_other(tmp_path: Path) -> None:
    lines = criteo_lines(30)
    one = write_lines(tmp_path / "b.tsv", lines[:10])
    other = write_lines(tmp_path / "a.tsv", lines[10:])
    check_equal_to_plain(read_criteo([one, other]), lines)


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        (criteo_line().rpartition("\t")[0], None, "39 tab-separated columns"),
        (criteo_line() + "\t1", None, "41 tab-separated columns"),
        ("", None, "1 tab-separated columns"),
        (with_column(0, "2"), "label", "0 or 1"),
        (with_column(0, ""), "label", "0 or 1"),
        (with_column(0, "x"), "label", "0 or 1"),
        (with_column(3, "1.5"), "I3", "'1.5' is not an integer"),
        (with_column(13, "9" * 30), "I13", "not an integer"),
        (with_column(14, "xyz"), "C1", "'xyz' is not a hexadecimal id"),
        (with_column(20, "123456789"), "C7", "1 to 8"),
        (with_column(39, "-1f"), "C26", "hexadecimal"),
        (with_column(39, "+1f"), "C26", "hexadecimal"),
        (with_column(39, "000000001"), "C26", "hexadecimal"),
    ],
)
def test_the_first_bad_line_is_named(tmp_path: Path, line: str, field: str | None, said: str) -> None:
    path = write_lines(tmp_path / "bad.tsv", [*criteo_lines(6), line, criteo_line(), line])
    with pytest.raises(DataError) as caught:
        read_criteo([path])
    assert caught.value.line == 7
    assert caught.value.field == field
    for part in (str(path), "line 7", said, "valid: ", field or ""):
        assert part in str(caught.value)


def test_bytes_that_are_not_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsv"
    path.write_bytes(criteo_line().encode() + b"\n" + with_column(15, "@").encode().replace(b"@", b"\xff") + b"\n")
    with pytest.raises(DataError, match=r"line 2.*UTF-8"):
        read_criteo([path])


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_either_rows_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "any.tsv"
    path.write_bytes(content)
    try:
        num_rows = read_criteo([path]).num_rows
    except DataError as error:
        num_rows = None
        message = str(error)
    assert num_rows or str(path) in message


def test_only_training_rows_are_counted(tmp_path: Path) -> None:
    lines = [criteo_line(ids=[value] * 26) for value in ("aa", "aa", "bb", "bb", "bb")]
    rows = read_criteo([write_lines(tmp_path / "a.tsv", lines)])
    vocabularies = rows.vocabularies(VocabularyConfig(min_count=2), np.array([0, 1, 2]))
    encoded = rows.encode(vocabularies).read(np.arange(5))
    assert encoded.ids.dtype == np.int64
    assert encoded.ids[0].tolist() == [2, 2, 0, 0, 0]


def test_a_hash_size_is_the_size_of_every_table(tmp_path: Path) -> None:
    rows = read_criteo([write_lines(tmp_path / "a.tsv", criteo_lines(100))])
    encoded = rows.encode(rows.vocabularies(VocabularyConfig(hash_size=11), np.arange(100)))
    assert {feature.num_ids for feature in encoded.schema.features} == {11}
    ids = encoded.read(np.arange(100)).ids
    assert ids.max() == 10
    for column, values in zip(ids, rows.categories, strict=True):
        np.testing.assert_array_equal(column == 0, values.is_null().to_numpy())


@pytest.mark.skipif(not REAL.exists(), reason=f"real Criteo rows are not at {REAL}")
def test_real_rows_are_read() -> None:
    rows = read_criteo([REAL])
    check_equal_to_plain(rows, REAL.read_text().splitlines())
    assert rows.num_rows == 10_000
    assert round(float(rows.labels.mean()), 3) == 0.218
    vocabularies = rows.vocabularies(VocabularyConfig(min_count=1), np.arange(10_000))
    assert sum(feature.num_ids - 2 for feature in vocabularies.features) == 43_579
