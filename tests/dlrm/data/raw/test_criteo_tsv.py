from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrm.config import CRITEO_SCHEMA
from dlrm.data.errors import DataError
from dlrm.data.raw.text.criteo import cut_criteo_blocks
from tests.dlrm.data.raw.criteo_files import criteo_line, criteo_lines, with_value, write_lines
from tests.dlrm.data.raw.plain import COMPRESSIONS, Row, compressed, found, good_rows_of, rows_of

REAL = Path(__file__).parents[5] / "shared" / "data" / "criteo_head" / "criteo_kaggle_first10000.tsv"


def plainly(line: str) -> Row:
    """By the definition."""
    label, *values = line.split("\t")
    dense = tuple(None if value == "" else float(int(value)) for value in values[:13])
    return Row(float(label), None, dense, tuple(None if value == "" else int(value, 16) for value in values[13:]))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("block_bytes", [1, 100, 1000, 1 << 20])
def test_rows_are_read_as_they_are_written(tmp_path: Path, compression: str, block_bytes: int) -> None:
    lines = criteo_lines(20)
    path = tmp_path / "a.tsv"
    path.write_bytes(compressed("\n".join(lines).encode(), compression))
    blocks = list(cut_criteo_blocks(found(path), block_bytes))
    assert rows_of(blocks) == [plainly(line) for line in lines]
    assert sum(block.num_bytes for block in blocks) == path.stat().st_size


def test_missing_is_not_zero(tmp_path: Path) -> None:
    lines = [criteo_line(dense=["", "-3", "0", "007"] + ["5"] * 9, ids=["", "0", "00000000", "FFFFFFFF"] + ["a"] * 22)]
    (row,) = rows_of(cut_criteo_blocks(found(write_lines(tmp_path / "a.tsv", lines))))
    assert row.dense[:4] == (None, -3.0, 0.0, 7.0)
    assert row.categorical[:4] == (None, 0, 0, 2**32 - 1)


def test_a_column_without_any_value_is_all_missing(tmp_path: Path) -> None:
    lines = [criteo_line(dense=[""] * 13, ids=[""] * 26)] * 3
    rows = rows_of(cut_criteo_blocks(found(write_lines(tmp_path / "a.tsv", lines))))
    assert rows == [plainly(lines[0])] * 3


BAD = [
    criteo_line().rpartition("\t")[0],
    criteo_line() + "\t1",
    "",
    "\t" * 39,
    with_value(0, "2"),
    with_value(0, ""),
    with_value(0, "01"),
    with_value(0, "-0"),
    with_value(3, "1.5"),
    with_value(3, "+1"),
    with_value(3, " 1"),
    with_value(3, "1e3"),
    with_value(3, "-"),
    with_value(3, "--1"),
    with_value(3, "null"),
    with_value(3, '"1"'),
    with_value(13, "9" * 19),
    with_value(14, "xyz"),
    with_value(14, "0x1f"),
    with_value(14, " 1f"),
    with_value(20, "123456789"),
    with_value(39, "-1f"),
    with_value(39, "+1f"),
    with_value(39, "000000001"),
    with_value(39, "1\0"),
    with_value(39, "1f\r\r"),
    with_value(39, "\u0661"),
]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_named_and_the_others_are_kept(tmp_path: Path, line: str) -> None:
    lines = criteo_lines(9)
    lines[6:6] = [line]
    file = found(write_lines(tmp_path / "bad.tsv", lines))
    with pytest.raises(DataError, match="line 7"):
        rows_of(cut_criteo_blocks(file))
    for block_bytes in (1, 1 << 20):
        rows, good = good_rows_of(cut_criteo_blocks(file, block_bytes))
        assert good == [row != 6 for row in range(10)]
        assert rows == [plainly(other) for other in lines if other != line]


def test_a_negative_zero_and_leading_zeros_are_numbers(tmp_path: Path) -> None:
    lines = [with_value(1, "-0"), with_value(2, "0" * 30 + "5")]
    assert rows_of(cut_criteo_blocks(found(write_lines(tmp_path / "a.tsv", lines)))) == [
        plainly(line) for line in lines
    ]


def test_a_missing_column_is_not_compensated_by_another_line(tmp_path: Path) -> None:
    lines = [criteo_line(), criteo_line().rpartition("\t")[0], criteo_line() + "\t0a"]
    rows, good = good_rows_of(cut_criteo_blocks(found(write_lines(tmp_path / "a.tsv", lines))))
    assert good == [True, False, False]
    assert rows == [plainly(lines[0])]


def test_the_first_ten_of_many_bad_rows_are_shown(tmp_path: Path) -> None:
    lines = [line for number in range(25) for line in (criteo_line(), with_value(0, str(number + 2)))]
    (block,) = cut_criteo_blocks(found(write_lines(tmp_path / "a.tsv", lines)))
    parsed = block.parse(True)
    assert [fault.line for fault in parsed.faults] == list(range(2, 22, 2))
    assert "'2' is not a label" in str(parsed.faults[0])
    np.testing.assert_array_equal(parsed.good, [True, False] * 25)


LINE = st.one_of(
    st.sampled_from(BAD),
    st.builds(
        criteo_line,
        st.sampled_from(["0", "1"]),
        st.lists(st.one_of(st.just(""), st.integers(-(10**18) + 1, 10**18 - 1).map(str)), min_size=13, max_size=13),
        st.lists(st.one_of(st.just(""), st.integers(0, 2**32 - 1).map("{:x}".format)), min_size=26, max_size=26),
    ),
)


@given(st.lists(LINE, min_size=1, max_size=12), st.sampled_from(COMPRESSIONS), st.integers(1, 3000))
def test_good_lines_are_kept_and_bad_ones_left_out_however_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], compression: str, block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "any"
    path.write_bytes(compressed("".join(f"{line}\n" for line in lines).encode(), compression))
    rows, good = good_rows_of(cut_criteo_blocks(found(path), block_bytes))
    assert good == [line not in BAD for line in lines]
    assert rows == [plainly(line) for line in lines if line not in BAD]


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_either_rows_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "any.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        rows_of(cut_criteo_blocks(found(path)))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("pattern", ["{}7", pytest.param("7{}", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("column", "allowed"), [(7, "0123456789"), (39, "0123456789abcdefABCDEF")])
def test_no_character_is_overlooked(tmp_path: Path, column: int, allowed: str, pattern: str) -> None:
    for character in map(chr, range(128)):
        if character not in "\t\n":
            value = pattern.format(character)
            path = write_lines(tmp_path / "a.tsv", [criteo_line(), with_value(column, value)])
            _, good = good_rows_of(cut_criteo_blocks(found(path)))
            is_end = column == 39 and value == "7\r"
            assert good == [True, character in allowed or (column == 7 and value == "-7") or is_end], value


def test_lines_that_end_in_cr_lf_are_the_same_rows(tmp_path: Path) -> None:
    lines = criteo_lines(9)
    lines[4] = with_value(0, "2")
    for end in ("\n", "\r\n"):
        path = tmp_path / "a.tsv"
        path.write_bytes("".join(line + end for line in lines).encode())
        rows, good = good_rows_of(cut_criteo_blocks(found(path)))
        assert good == [row != 4 for row in range(9)]
        assert rows == [plainly(line) for line in lines if line != lines[4]]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason=f"real Criteo rows are not at {REAL}")
def test_real_rows_are_read() -> None:
    rows = rows_of(cut_criteo_blocks(found(REAL), 1 << 20))
    assert rows == [plainly(line) for line in REAL.read_text().splitlines()]
    assert len(rows) == 10_000
    num_values = sum(len({row.categorical[f] for row in rows} - {None}) for f in range(len(CRITEO_SCHEMA.categorical)))
    assert num_values == 43_579
