"""Files at fault: each is one error that names the file, the line and the field, and what would be valid."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import BadRows
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.criteo_files import criteo_line, with_value
from tests.dlrm.data.raw.plain import compressed, found, good_rows_of, rows_of

SCHEMA = SchemaConfig(
    weight="w",
    dense=[DenseColumn(name="x")],
    categorical=[
        CategoricalColumn(name="c"),
        CategoricalColumn(name="id", type="integer"),
        CategoricalColumn(name="tags", multi_hot=True),
    ],
)
WITHOUT_HEADER = SCHEMA.model_copy(update={"columns": ["label", "x", "c", "id", "tags", "w"]})
HEADER = "label,x,c,id,tags,w"
GOOD = "0,1,a,7,p|q,1"


@dataclass(frozen=True)
class Bad:
    """The second of two files; the first is good."""

    name: str
    content: bytes
    line: int | None
    field: str | None
    message: str
    valid: str


def check(bad: Bad, config: DataConfig, directory: Path, good: bytes) -> None:
    (directory / "good").write_bytes(good)
    path = directory / "bad"
    path.write_bytes(bad.content)
    with pytest.raises(DataError) as caught:
        rows_of(cut_blocks(config, find_files(["good", "bad"], "data.train", None, directory)))
    error = caught.value
    assert (error.file, error.line, error.field) == (str(path), bad.line, bad.field)
    assert bad.message in error.message
    assert bad.valid in error.valid
    assert "\n" not in str(error)


def tsv(line: str, number: int = 7, end: str = "\n") -> bytes:
    """A file whose line `number` is `line`."""
    lines = [criteo_line()] * 9
    lines[number - 1] = line
    return "".join(f"{text}{end}" for text in lines).encode()


CRITEO = [
    Bad("a column too few", tsv(criteo_line().rpartition("\t")[0]), 7, None, "has 39 tab-separated columns", "40: "),
    Bad("a column too many", tsv(criteo_line() + "\t"), 7, None, "has 41 tab-separated columns", "40: "),
    Bad("another separator", tsv(criteo_line().replace("\t", ","), 1), 1, None, "has 1 tab-separated column", "40: "),
    Bad("a blank line", tsv(""), 7, None, "the line is blank", "one row per line"),
    Bad("label 2", tsv(with_value(0, "2")), 7, "label", "'2' is not a label", "0 or 1"),
    Bad("label nan", tsv(with_value(0, "nan")), 7, "label", "'nan' is not a label", "0 or 1"),
    Bad("blank label", tsv(with_value(0, "")), 7, "label", "the label is missing", "0 or 1"),
    Bad("no integer", tsv(with_value(3, "1.5")), 7, "I3", "'1.5' is not an integer", "digits"),
    Bad("no hexadecimal id", tsv(with_value(20, "xyz")), 7, "C7", "'xyz' is not a hexadecimal id", "0-9 a-f"),
    Bad("an id of 9 digits", tsv(with_value(39, "123456789")), 7, "C26", "not a hexadecimal id", "1 to 8"),
    Bad("a header", tsv("\t".join(["label", "I1", "I2"]), 1), 1, None, "is a header", "format csv"),
    Bad("not UTF-8", tsv(with_value(15, "@")).replace(b"@", b"\xff"), 7, None, "not UTF-8", "UTF-8 text"),
    Bad("NUL bytes", tsv(with_value(15, "\0")), 7, "C2", "'\\x00' is not a hexadecimal id", "0-9 a-f"),
    Bad("in a gzip", compressed(tsv(with_value(0, "2")), "gzip"), 7, "label", "'2' is not a label", "0 or 1"),
]


@pytest.mark.parametrize("bad", CRITEO, ids=lambda bad: bad.name)
def test_criteo(bad: Bad, tmp_path: Path) -> None:
    check(bad, DataConfig(train=["x"]), tmp_path, good=tsv(criteo_line()))


def csv_of(line: str, header: str = HEADER) -> bytes:
    return "\n".join([header, *[GOOD] * 5, line, GOOD, ""]).encode()


NUMBER = "a finite number"
CSV = [
    Bad("a column too few", csv_of("0,1,a,7,p"), 7, None, "has 5 columns", "6, as the header has, with ',' between"),
    Bad("a column too many", csv_of("0,1,a,7,p,1,1"), 7, None, "has 7 columns", "6, as the header has"),
    Bad("another delimiter", csv_of(GOOD.replace(",", ";")), 7, None, "has 1 column", "6, as the header has"),
    Bad("a blank line", csv_of(""), 7, None, "the line is blank", "one row per line"),
    Bad(
        "a quoted newline", csv_of('0,1,"a\nb",7,p,1'), 7, None, "quoted value does not end on its line", "line breaks"
    ),
    Bad(
        "an open quote at the end",
        csv_of("")[: -len(GOOD) - 2] + b'0,1,a,7,p,"1\n',
        7,
        None,
        "does not end",
        "line breaks",
    ),
    Bad("not UTF-8", csv_of("0,1,@,7,p,1").replace(b"@", b"\xff"), 7, None, "not UTF-8", "UTF-8 text"),
    Bad("NUL bytes", csv_of("0,1,\0,7,p,1"), 7, None, "holds a NUL byte", "UTF-8 text"),
    Bad("a carriage return", csv_of("0,1,a\rb,7,p,1"), 7, None, "a carriage return inside", "LF or CR LF"),
    Bad("label 2", csv_of("2,1,a,7,p,1"), 7, "label", "'2' is not a label", "0 or 1"),
    Bad("label nan", csv_of("nan,1,a,7,p,1"), 7, "label", "'nan' is not a label", "0 or 1"),
    Bad("blank label", csv_of(",1,a,7,p,1"), 7, "label", "the label is missing", "0 or 1"),
    Bad("a word in dense", csv_of("0,abc,a,7,p,1"), 7, "x", "'abc' is not a number", NUMBER),
    Bad("a word in an integer column", csv_of("0,1,a,abc,p,1"), 7, "id", "'abc' is not an integer", 'type "string"'),
    Bad("an id of 65 bits", csv_of(f"0,1,a,{2**64},p,1"), 7, "id", f"'{2**64}' is beyond 64 bits", "2^64 - 1"),
    Bad("a part in an integer column", csv_of("0,1,a,3.5,p,1"), 7, "id", "'3.5' is not an integer", 'type "string"'),
    Bad("negative weight", csv_of("0,1,a,7,p,-1"), 7, "w", "'-1' is not a weight", "at least 0"),
    Bad("blank weight", csv_of("0,1,a,7,p,"), 7, "w", "the weight is missing", "at least 0"),
    Bad("infinite weight", csv_of("0,1,a,7,p,inf"), 7, "w", "'inf' is not a weight", "finite"),
    Bad("weight nan", csv_of("0,1,a,7,p,nan"), 7, "w", "'nan' is not a weight", "finite"),
    Bad("weight 1e39", csv_of("0,1,a,7,p,1e39"), 7, "w", "'1e39' is beyond float32", "at most 3.403e+38"),
    Bad("a column missing", csv_of(GOOD, "label,x,c,id,tags,v"), 1, "w", "there is no such column", "`columns`"),
    Bad(
        "no header",
        csv_of(GOOD, GOOD),
        1,
        "label",
        "there is no such column; the first line does not look",
        "`columns`",
    ),
    Bad(
        "a column missing among many",
        csv_of(GOOD, ",".join(f"a{number}" for number in range(9))),
        1,
        "label",
        "there is no such column; the first line has a0, a1, a2, a3, a4 and 4 more",
        "`columns`",
    ),
    Bad(
        "a name twice", csv_of(GOOD + ",1", HEADER + ",x"), 1, "x", "the header has this name twice", "a different name"
    ),
    Bad("a name in two lines", csv_of(GOOD, f'{HEADER},"a\nb"'), 1, None, "has a line end", "all in one line"),
    Bad("a header that is no text", b"\xff\xfa\n", 1, None, "the header cannot be read", "column names"),
]


@pytest.mark.parametrize("bad", CSV, ids=lambda bad: bad.name)
def test_csv(bad: Bad, tmp_path: Path) -> None:
    check(bad, DataConfig(train=["x"], format="csv", schema=SCHEMA), tmp_path, good=csv_of(GOOD))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"url": "here", "admin_key": "hunter2-hunter2"', "begins like JSON Lines, but has no whole object on a line"),
        *((line, "the first line does not look like a header") for line in ("hunter2-hunter2", "user,hunter2 hunter2")),
        ("a,\x1b[2J", "there is no such column; the first line does not look like a header"),
    ],
)
def test_an_error_does_not_show_text_of_a_file_that_is_no_csv(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "a"
    path.write_text(f"{line}\n{line}\n")
    config = DataConfig(train=["a"], format="csv", schema=SCHEMA)
    with pytest.raises(DataError) as caught:
        rows_of(cut_blocks(config, [found(path)]))
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_header_with_odd_names_is_shown_with_the_likeliest_name_first(tmp_path: Path) -> None:
    """One name of the schema tells that the line is a header."""
    path = tmp_path / "a"
    path.write_text("user id,c%,a,b,d,tags,iid,labels,w\n")
    with pytest.raises(DataError) as caught:
        rows_of(cut_blocks(DataConfig(train=["a"], format="csv", schema=SCHEMA), [found(path)]))
    assert "label: there is no such column; the first line has labels, 'user id', 'c%', a, b and 4 more" in str(
        caught.value
    )


def test_a_value_at_fault_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(f"{HEADER}\n0,{'k' * 16 + 'l' * 16},a,7,p,1\n")
    with pytest.raises(DataError, match=r"line 2, x: 'k{16}l{0,4}\.\.\. is not a number"):
        rows_of(cut_blocks(DataConfig(train=["a"], format="csv", schema=SCHEMA), [found(path)]))


@pytest.mark.parametrize("format", ["csv", "criteo_tsv"])
def test_the_first_of_many_bad_lines_ends_the_reading(
    tmp_path: Path, format: Literal["csv", "criteo_tsv"], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, good = (f"{HEADER}\n", f"{GOOD}\n") if format == "csv" else ("", f"{criteo_line()}\n")
    path = tmp_path / "a"
    path.write_text(first + good * 3 + "\n" * 1000)
    added: list[int] = []
    add_one = BadRows.add_one

    def count(self: BadRows, row: int, field: str | None, description: tuple[str, str]) -> None:
        added.append(row)
        add_one(self, row, field, description)

    monkeypatch.setattr(BadRows, "add_one", count)
    config = DataConfig(train=["a"], format=format, schema=SCHEMA if format == "csv" else None)
    (block,) = cut_blocks(config, [found(path)])
    with pytest.raises(DataError, match=f"line {4 + bool(first)}: the line is blank"):
        block.parse(False)
    assert len(added) == 1
    added.clear()
    parsed = block.parse(True)
    assert parsed.good is not None
    assert (len(added), int(parsed.good.sum()), len(parsed.faults)) == (1000, 3, 10)


def test_a_bad_value_before_a_bad_line_is_the_first_fault(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(f"{HEADER}\n{GOOD}\n2,1,a,7,p|q,1\n\n{GOOD}\n")
    with pytest.raises(DataError, match="line 3, label: '2' is not a label"):
        rows_of(cut_blocks(DataConfig(train=["a"], format="csv", schema=SCHEMA), [found(path)]))


def test_a_header_where_none_is_declared(tmp_path: Path) -> None:
    config = DataConfig(train=["x"], format="csv", schema=WITHOUT_HEADER)
    bad = Bad("", csv_of(GOOD), 1, "label", "the first line is a header", "a schema without `columns`")
    check(bad, config, tmp_path, good=f"{GOOD}\n".encode())


COLUMNS = {
    "label": pa.array([0, 1, 0], pa.int8()),
    "x": pa.array([1.0, None, 3.0]),
    "c": pa.array(["a", None, "b"]),
    "id": pa.array([1, None, 3]),
    "tags": pa.array([["a"], None, []], pa.list_(pa.string())),
    "w": pa.array([1.0, 2.0, 0.0], pa.float32()),
}


def table_of(**changed: pa.Array | None) -> bytes:
    columns = {name: column for name, column in {**COLUMNS, **changed}.items() if column is not None}
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink, row_group_size=2)
    return sink.getvalue().to_pybytes()


NOT_UTF_8 = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b", b"\xff"]).buffers())
LISTS_NOT_UTF_8 = pa.ListArray.from_arrays([0, 1, 1, 3], NOT_UTF_8)
DECIMALS = pa.array([1, 2, 2**64], pa.decimal128(38, 0))
LISTS = pa.array([["a"], ["b"], ["c"]])
COMPLETE = "a complete Parquet file"
PARQUET = [
    Bad("one byte", b"P", None, None, "is text", 'format "csv"'),
    Bad("truncated", table_of()[:-20], None, None, "is a truncated Parquet file", COMPLETE),
    Bad("without its middle", table_of()[:30] + table_of()[60:], None, None, "not readable as Parquet", COMPLETE),
    Bad("a column missing", table_of(x=None), None, "x", "there is no such column", "label, c, id, tags, w"),
    Bad("label of words", table_of(label=pa.array(["0", "1", "no"])), 3, "label", "'no' is not a label", "positive"),
    Bad("dense of words", table_of(x=pa.array(["1", "", "x"])), 3, "x", "'x' is not a number", NUMBER),
    Bad("dense of dates", table_of(x=pa.array([1, 2, 3], pa.date32())), None, "x", "type is date32", "numbers, bool"),
    Bad("strings of floats", table_of(c=COLUMNS["x"]), None, "c", "type is double", 'type "integer" in the schema'),
    Bad("strings of bool", table_of(c=pa.array([True] * 3)), None, "c", "type is bool", 'type "integer" in the schema'),
    Bad("integers of words", table_of(id=COLUMNS["c"]), 1, "id", "'a' is not an integer", 'type "string"'),
    Bad(
        "integers of dates", table_of(id=pa.array([1] * 3, pa.date32())), None, "id", "type is date32", "text of these"
    ),
    Bad("an id with a part", table_of(id=pa.array([1, None, 3.5])), 3, "id", "3.5 is not an integer", "bucketize"),
    Bad("a list where a scalar should be", table_of(c=LISTS), None, "c", "type is list", "multi_hot: true"),
    Bad("a scalar where a list should be", table_of(tags=COLUMNS["c"]), None, "tags", "string", "multi_hot: false"),
    Bad("lists of lists", table_of(tags=pa.array([[["a"]]] * 3)), None, "tags", "type is list<", "lists of text"),
    Bad("lists of floats", table_of(tags=pa.array([[1.0]] * 3)), None, "tags", "type is list<", 'type "integer"'),
    Bad("label missing", table_of(label=pa.array([0, 1, None])), 3, "label", "the label is missing", "0 or 1"),
    Bad("label nan", table_of(label=pa.array([0, 1, float("nan")])), 3, "label", "nan is not a label", "0 or 1"),
    Bad("label 2", table_of(label=pa.array([0, 1, 2])), 3, "label", "2 is not a label", "0 or 1"),
    Bad("label 0.5", table_of(label=pa.array([0, 1, 0.5])), 3, "label", "0.5 is not a label", "0 or 1"),
    Bad("weight missing", table_of(w=pa.array([1, 1, None])), 3, "w", "the weight is missing", "at least 0"),
    Bad("infinite weight", table_of(w=pa.array([1, 1, float("inf")])), 3, "w", "inf is not a weight", "finite"),
    Bad("weight nan", table_of(w=pa.array([1, 1, float("nan")])), 3, "w", "nan is not a weight", "finite"),
    Bad("weight 1e39", table_of(w=pa.array([1, 1, 1e39])), 3, "w", "1e+39 is beyond float32", "at most 3.403e+38"),
    Bad("weights in lists", table_of(w=pa.array([[1.0]] * 3)), None, "w", "type is list<", "numbers, bool"),
    Bad("weight negative", table_of(w=pa.array([1, 1, -0.5])), 3, "w", "-0.5 is not a weight", "at least 0"),
    Bad("an id of 65 bits", table_of(id=DECIMALS), 3, "id", "is beyond 64 bits", "ids stored as text"),
    Bad("not UTF-8", table_of(c=NOT_UTF_8), 3, "c", "not UTF-8", "UTF-8 text"),
    Bad("not UTF-8 in a list", table_of(tags=LISTS_NOT_UTF_8), 3, "tags", "not UTF-8", "UTF-8 text"),
]


@pytest.mark.parametrize("bad", PARQUET, ids=lambda bad: bad.name)
def test_parquet(bad: Bad, tmp_path: Path) -> None:
    check(bad, DataConfig(train=["x"], format="parquet", schema=SCHEMA), tmp_path, good=table_of())


@given(st.integers(0, len(table_of()) - 1), st.integers(0, 255))
def test_parquet_with_a_damaged_byte_is_either_rows_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int
) -> None:
    content = bytearray(table_of())
    content[place] = byte
    path = tmp_path_factory.mktemp("damaged") / "a.parquet"
    path.write_bytes(content)
    try:
        num_rows, message = len(rows_of(cut_parquet_blocks(found(path), SCHEMA))), ""
    except DataError as error:
        num_rows, message = 0, str(error)
    assert num_rows or str(path) in message


def test_a_name_that_two_columns_have_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([*COLUMNS.values(), COLUMNS["x"]], names=[*COLUMNS, "x"])
    parquet.write_table(table, tmp_path / "a.parquet")
    config = DataConfig(train=["x"], format="parquet", schema=SCHEMA)
    with pytest.raises(DataError, match=r"a\.parquet, x: two columns have this name"):
        rows_of(cut_blocks(config, find_files(["a.parquet"], "data.train", None, tmp_path)))


def test_a_quote_that_is_never_closed_costs_its_own_line_alone(tmp_path: Path) -> None:
    good = [f"0,t{number},1" for number in range(5)]
    # A quote at the beginning of a later value does not close it.
    lines = ["label,text,x", '1,"open,5', *good, '0,"so called" thing,5', *good, '0,"open too,5', *good]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    schema = SchemaConfig(dense=[DenseColumn(name="x")], categorical=[CategoricalColumn(name="text")])
    _, is_good = good_rows_of(cut_csv_blocks(found(tmp_path / "rows.csv"), schema))
    assert is_good == [False, *[True] * 11, False, *[True] * 5]
