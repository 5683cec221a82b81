"""Any table written as CSV or Parquet reads back equal, however the file is cut."""

import csv
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.plain import COMPRESSIONS, Row, compressed, found, good_rows_of, rows_of

SCHEMA = SchemaConfig(
    label="clicked",
    weight="importance",
    dense=[DenseColumn(name="x"), DenseColumn(name="y")],
    categorical=[
        CategoricalColumn(name="city"),
        CategoricalColumn(name="id", type="integer"),
        CategoricalColumn(name="tags", multi_hot=True),
        CategoricalColumn(name="items", type="integer", multi_hot=True),
    ],
)
Raw = dict[str, Any]

FLOAT = st.floats(-3.4e38, 3.4e38)
INTEGER = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
CSV_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0|"), min_size=1, max_size=5)


def rows(text: st.SearchStrategy[str], min_list: int) -> st.SearchStrategy[list[Raw]]:
    def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | st.lists(st.none() | values, min_size=min_list, max_size=4)

    row = st.fixed_dictionaries(
        {
            "clicked": st.sampled_from([0, 1]),
            "importance": st.floats(0, 1000, width=32),
            "x": st.none() | FLOAT,
            "y": st.none() | st.integers(-5, 5).map(float),
            "city": st.none() | text,
            "id": st.none() | INTEGER | st.integers(0, 3),
            "tags": lists(text),
            "items": lists(INTEGER | st.integers(0, 3)),
            "unused": text,
        }
    )
    return st.lists(row, min_size=1, max_size=20)


def expected(row: Raw) -> Row:
    lists = [(None,) if row[name] is None else tuple(row[name]) for name in ("tags", "items")]
    return Row(row["clicked"], row["importance"], (row["x"], row["y"]), (row["city"], row["id"], *lists))


def cell(value: Any) -> str:
    if isinstance(value, list):
        return "|".join(cell(part) for part in value)
    return "" if value is None else str(value)


def as_csv(table: list[Raw], names: list[str], delimiter: str, newline: str, has_header: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=newline)
    writer.writerows([names] if has_header else [])
    writer.writerows([cell(row[name]) for name in names] for row in table)
    return text.getvalue().encode()


@given(
    table=rows(CSV_TEXT, min_list=1),
    names=st.permutations([*SCHEMA.names, "unused"]),
    delimiter=st.sampled_from(",;\t"),
    newline=st.sampled_from(["\n", "\r\n"]),
    has_header=st.booleans(),
    compression=st.sampled_from(COMPRESSIONS),
    block_bytes=st.integers(1, 2000),
)
def test_csv(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[Raw],
    names: list[str],
    delimiter: str,
    newline: str,
    has_header: bool,
    compression: str,
    block_bytes: int,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows"
    path.write_bytes(compressed(as_csv(table, names, delimiter, newline, has_header), compression))
    schema = SCHEMA.model_copy(update={"delimiter": delimiter, "columns": None if has_header else names})
    assert rows_of(cut_csv_blocks(found(path), schema, block_bytes)) == [expected(row) for row in table]


def as_parquet(table: list[Raw], is_large: bool) -> pa.Table:
    text = pa.large_string() if is_large else pa.string()
    lists = pa.large_list if is_large else pa.list_
    kinds = {
        "clicked": pa.int8() if is_large else pa.bool_(),
        "importance": pa.float32(),
        "x": pa.float64(),
        "y": pa.float64() if is_large else pa.int16(),
        "city": pa.dictionary(pa.int8(), text) if is_large else text,
        "id": pa.int64(),
        "tags": lists(text),
        "items": lists(pa.int64()),
        "unused": text,
    }
    columns = {name: [row[name] for row in table] for name in kinds}
    if not is_large:
        columns["clicked"] = [bool(value) for value in columns["clicked"]]
        columns["y"] = [None if value is None else int(value) for value in columns["y"]]
    return pa.table({name: pa.array(columns[name], type=kind) for name, kind in kinds.items()})


@given(rows(TEXT, min_list=0), st.booleans(), st.booleans(), st.integers(1, 25), st.integers(1, 25))
def test_parquet(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[Raw],
    is_large: bool,
    use_dictionary: bool,
    group_rows: int,
    block_rows: int,
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "rows"
    parquet.write_table(as_parquet(table, is_large), path, row_group_size=group_rows, use_dictionary=use_dictionary)
    blocks = list(cut_parquet_blocks(found(path), SCHEMA, block_rows))
    assert rows_of(blocks) == [expected(row) for row in table]
    assert max(block.num_rows for block in blocks) <= min(block_rows, group_rows)
    assert sum(block.num_bytes for block in blocks) == path.stat().st_size


BAD_VALUES = {
    "clicked": ["2", "", "nan", "x", "-1", "0.5"],
    "importance": ["", "-1", "nan", "inf", "x", "1e39"],
    "x": ["x", "1.2.3", "1,5x"],
    "id": ["1.5", "x", str(2**64), "1 2"],
    "items": ["1|x", "1|2.5", f"|{2**64}"],
}
NAMES = list(SCHEMA.names)
BAD_LINES = [
    b"",
    b"1,2",
    b",".join([b"1"] * 10),
    b"\xff,1,1,1,1,1,1,1",
    b"1,1,1,1,\0,1,1,1",
    b'"1,1,1,1,1,1,1,1',
    b"1\r,1,1,1,1,1,1,1",
]


@given(st.data(), rows(CSV_TEXT, min_list=1), st.integers(1, 2000))
def test_csv_rows_at_fault_are_left_out_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, table: list[Raw], block_bytes: int
) -> None:
    lines = [as_csv([row], NAMES, ",", "", has_header=False) for row in table]
    is_good = [data.draw(st.booleans()) for _ in lines]
    for place, good in enumerate(is_good):
        if not good and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(BAD_VALUES)))
            row = {key: cell(value) for key, value in table[place].items()}
            row[name] = data.draw(st.sampled_from(BAD_VALUES[name]))
            lines[place] = as_csv([row], NAMES, ",", "", has_header=False)
        elif not good:
            lines[place] = data.draw(st.sampled_from(BAD_LINES))
    # Alone, a line with a carriage return inside is a file whose lines end in it.
    assume(len(lines) > 1 or b"\r" not in lines[0])
    path = tmp_path_factory.mktemp("csv") / "rows"
    path.write_bytes(b"\n".join(lines) + b"\n")
    schema = SCHEMA.model_copy(update={"columns": NAMES})
    read, good = good_rows_of(cut_csv_blocks(found(path), schema, block_bytes))
    assert good == is_good
    assert read == [expected(row) for row, good in zip(table, is_good, strict=True) if good]


@given(st.lists(st.text('a", ', max_size=8), min_size=1, max_size=8))
def test_a_line_means_the_same_alone_and_among_others(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "rows"
    path.write_text("".join(f"1,{line}\n" for line in lines))
    schema = SchemaConfig(
        categorical=[CategoricalColumn(name="a"), CategoricalColumn(name="b")], columns=["label", "a", "b"]
    )
    file = found(path)
    assert good_rows_of(cut_csv_blocks(file, schema, 1)) == good_rows_of(cut_csv_blocks(file, schema))
