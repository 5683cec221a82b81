"""The same values in columns of every type, in Parquet, in CSV and in memory."""

import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import Parsed
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from dlrm.data.raw.typed.typed_table import check_columns, parse_table
from tests.dlrm.data.raw.plain import Value, found, plain_rows

NAN, INF, LARGEST = float("nan"), float("inf"), float(np.finfo(np.float64).max)
UUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
INTEGERS = CategoricalColumn(name="x", type="integer")
STRINGS = CategoricalColumn(name="x")


def in_parquet(directory: Path, values: pa.Array, schema: SchemaConfig) -> Parsed:
    columns = {"x": values} if schema.label == "x" else {"x": values, "label": pa.array([0] * len(values))}
    parquet.write_table(pa.table(columns), directory / "rows.parquet")
    (block,) = cut_parquet_blocks(found(directory / "rows.parquet"), schema)
    return block.parse(False)


def in_memory(_: Path, values: pa.Array, schema: SchemaConfig) -> Parsed:
    table = pa.table({"x": values})
    check_columns(table.schema, schema, None, with_labels=False)
    return parse_table(table, 0, None, schema, keep_going=False, with_labels=False)


def in_csv(directory: Path, values: pa.Array, schema: SchemaConfig) -> Parsed:
    texts = [value.decode() if isinstance(value, bytes) else value for value in values.to_pylist()]
    lines = ["" if text is None else str(text) for text in texts]
    (directory / "rows.csv").write_text("\n".join(["x,label", *(f"{line},0" for line in lines)]) + "\n")
    (block,) = cut_csv_blocks(found(directory / "rows.csv"), schema)
    return block.parse(False)


def read(parse: Callable[[Path, pa.Array, SchemaConfig], Parsed], directory: Path, values: pa.Array, column: Any):
    rows = plain_rows(parse(directory, values, SchemaConfig(categorical=[column])).table)
    return [row.categorical[0] for row in rows]


SMALL: list[Value] = [7, None, 0]
TEXTS = ["7", "7.0", " 7", "7 ", "+7", "7.", "7e0", "70E-1", "07"]
SMALL_ARRAYS = {
    **{str(kind): pa.array(SMALL, kind) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.uint64())},
    **{str(kind): pa.array([7.0, NAN, 0.0], kind) for kind in (pa.float32(), pa.float64())},
    "float16": pa.array(np.array([7, NAN, 0], np.float16)),
    "null double": pa.array([7.0, None, -0.0]),
    **{
        str(kind): pa.array([Decimal(7), None, Decimal(0)], kind)
        for kind in (pa.decimal32(5, 0), pa.decimal64(12, 3), pa.decimal128(38, 18), pa.decimal256(70, 5))
    },
    **{f"text {text}": pa.array([text, None, "0"]) for text in TEXTS},
    "blank text": pa.array(["7", "", "0"]),
    "text nan": pa.array(["7.0", "nan", "0.0"]),
    "large text": pa.array(["7", None, "0"], pa.large_string()),
    "view": pa.array(["7", None, "0"], pa.string_view()),
    "bytes": pa.array([b"7.0", None, b"0"]),
    "dictionary of doubles": pa.array([7.0, None, 0.0]).dictionary_encode(),
    "dictionary of text": pa.array(["7", None, "0"]).dictionary_encode(),
}
LARGE = [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, None, -(2**63)]
LARGE_IDS = [id if id is None or id < 2**63 else id - 2**64 for id in LARGE]


@pytest.mark.parametrize("values", SMALL_ARRAYS.values(), ids=SMALL_ARRAYS)
def test_an_id_is_the_same_integer_in_every_type_and_format(tmp_path: Path, values: pa.Array) -> None:
    for parse in (in_parquet, in_memory, in_csv):
        assert read(parse, tmp_path, values, INTEGERS) == SMALL, parse
    lists = pa.ListArray.from_arrays(
        [0, 2, 3], pa.array(values.to_pylist(), getattr(values.type, "value_type", values.type))
    )
    multi_hot = CategoricalColumn(name="x", type="integer", multi_hot=True)
    assert read(in_parquet, tmp_path, lists, multi_hot) == [(7, None), (0,)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(LARGE, pa.decimal128(38, 0)),
        pa.array([None if id is None else str(id) for id in LARGE]),
        pa.array([None if id is None else f"{id}.00" for id in LARGE]),
        pa.array(LARGE, pa.decimal256(50, 0)).dictionary_encode(),
    ],
)
def test_ids_from_2_63_on_are_the_negative_integers_of_the_same_bits(tmp_path: Path, values: pa.Array) -> None:
    for parse in (in_parquet, in_memory, in_csv):
        assert read(parse, tmp_path, values, INTEGERS) == LARGE_IDS
    unsigned = pa.array(LARGE[:-1], pa.uint64())
    assert read(in_parquet, tmp_path, unsigned, INTEGERS) == LARGE_IDS[:-1]


@pytest.mark.parametrize("parse", [in_parquet, in_memory, in_csv])
def test_booleans_are_0_and_1(tmp_path: Path, parse: Callable[..., Parsed]) -> None:
    for values in (pa.array([True, None, False]), pa.array(["true", None, "FALSE"])):
        assert read(parse, tmp_path, values, INTEGERS) == [1, None, 0]
        numbers = plain_rows(parse(tmp_path, values, SchemaConfig(dense=[DenseColumn(name="x")])).table)
        assert [row.dense[0] for row in numbers] == [1, None, 0]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([7, None], pa.int64()), ["7", None]),
        (pa.array([2**64 - 1, None], pa.uint64()), [str(2**64 - 1), None]),
        (pa.array([10**30, None], pa.decimal128(38, 0)), [str(10**30), None]),
        (pa.array([7, None]).dictionary_encode(), ["7", None]),
        (pa.array([UUID, None], pa.uuid()), [str(UUID), None]),
        (pa.array([UUID.bytes, None], pa.binary(16)), [str(UUID), None]),
        (pa.array([UUID.bytes, b"a", None]), [str(UUID), "a", None]),
        (pa.array([UUID.bytes, None], pa.binary_view()), [str(UUID), None]),
        (pa.array([UUID.bytes, None]).dictionary_encode(), [str(UUID), None]),
        (pa.array([b"\xff\x00", b"US", None], pa.binary(2)), ["ff00", "US", None]),
        (pa.array([b"\xff\x00", "Zürich".encode(), b""]), ["ff00", "Zürich", ""]),
        (pa.array(['{"a": 1}', None], pa.json_()), ['{"a": 1}', None]),
    ],
)
def test_strings_are_the_text_that_csv_would_have(tmp_path: Path, values: pa.Array, texts: list[str | None]) -> None:
    for parse in (in_parquet, in_memory):
        assert read(parse, tmp_path, values, STRINGS) == texts


EXTREMES = [INF, -INF, LARGEST, -LARGEST, 1e39, 2.0**63, -(2.0**63), 2.0**64, float(np.finfo(np.float32).max)]


@pytest.mark.parametrize("parse", [in_parquet, in_memory, in_csv])
def test_numbers_that_stand_for_no_value_are_missing_and_counted(tmp_path: Path, parse: Callable[..., Parsed]) -> None:
    schema = SchemaConfig(dense=[DenseColumn(name="x")], categorical=[CategoricalColumn(name="x", bucketize=4)])
    arrays = [pa.array([1.5, None, *EXTREMES]), pa.array(["1.5", None, *map(repr, EXTREMES)])]
    for values in (*arrays, pa.array([1, None, 2**63 - 1, -(2**63)])):
        parsed = parse(tmp_path, values, schema)
        assert parsed.odd_values == {"extreme": {"x": len(values) - 2}}
        assert np.isnan(parsed.table.dense[0]).tolist() == [False, *[True] * (len(values) - 1)]
        assert parsed.table.categorical[0].codes.tolist() == [0, *[-1] * (len(values) - 1)]


def test_ids_from_floats_that_stand_for_several_integers_are_counted(tmp_path: Path) -> None:
    for values in (
        pa.array([7.0, 2.0**53, 2.0**64, INF]),
        pa.array(["7", "9.007199254740992e15", "1.8446744073709552E19", "inf"]),
    ):
        parsed = in_parquet(tmp_path, values, SchemaConfig(categorical=[INTEGERS]))
        assert parsed.odd_values == {"extreme": {"x": 1}, "rounded": {"x": 2}}
        assert [row.categorical[0] for row in plain_rows(parsed.table)] == [7, 2**53, -1, None]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array([1.0, 0.0], pa.float32()),
        pa.array([Decimal(1), Decimal(0)], pa.decimal128(38, 0)),
        pa.array(["1.0", "0"]),
        pa.array([1, 0], pa.uint64()).dictionary_encode(),
    ],
)
@pytest.mark.parametrize("positive", [None, "1"])
def test_labels_are_0_and_1_in_every_type(tmp_path: Path, values: pa.Array, positive: str | None) -> None:
    schema = SchemaConfig(label="y", positive=positive, weight="x", categorical=[CategoricalColumn(name="z")])
    parquet.write_table(pa.table({"y": values, "x": ["2", " .5"], "z": ["a", "b"]}), tmp_path / "rows.parquet")
    (block,) = cut_parquet_blocks(found(tmp_path / "rows.parquet"), schema)
    table = block.parse(False).table
    assert table.weights is not None
    assert (table.labels.tolist(), table.weights.tolist()) == ([1, 0], [2, 0.5])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1.0, 3.5]), r"line 2, x: 3\.5 is not an integer"),
        (pa.array([1.0, 2.0**65]), r"line 2, x: 3\.6.*e\+19 is beyond 64 bits \(valid: -2\^63 to 2\^64 - 1"),
        (pa.array([Decimal("1.00"), Decimal("3.50")]), r"line 2, x: 3\.50 is not an integer"),
        (pa.array([1, -(2**63) - 1], pa.decimal128(38, 0)), r"line 2, x: -9223372036854775809 is beyond 64 bits"),
        (pa.array(["1", "9" * 400]), r"line 2, x: '9+\.\.\. is beyond 64 bits"),
        (pa.array(["1", "1,5"]), r"line 2, x: '1,5' is not an integer"),
        (pa.array([b"1", b"\xff"]), r"line 2, x: b'\\xff' is not an integer"),
    ],
)
def test_what_is_no_id_of_64_bits_is_a_bad_row(tmp_path: Path, values: pa.Array, message: str) -> None:
    with pytest.raises(DataError, match=message):
        in_parquet(tmp_path, values, SchemaConfig(categorical=[INTEGERS]))


@pytest.mark.parametrize("year", [1, 1583, 2024, 9999])
def test_timestamps_of_int96_are_of_their_own_century(tmp_path: Path, year: int) -> None:
    times = pa.array([np.datetime64(f"{year:04}-06-01", "us")])
    parquet.write_table(
        pa.table({"label": [0], "x": times}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True
    )
    schema = SchemaConfig(categorical=[CategoricalColumn(name="x", time_part="year")])
    (block,) = cut_parquet_blocks(found(tmp_path / "a.parquet"), schema)
    assert block.parse(False).table.categorical[0].distinct.to_list() == [year]
