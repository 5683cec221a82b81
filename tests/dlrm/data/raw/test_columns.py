"""What single columns of CSV and Parquet files mean."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import Block
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from dlrm.data.raw.values.distinct import encode_distinct_values
from tests.dlrm.data.raw.criteo_files import criteo_lines, write_lines
from tests.dlrm.data.raw.plain import Row, check_distinct, found, good_rows_of, plain_rows, rows_of, tables_of

SCHEMA = SchemaConfig(dense=[DenseColumn(name="x")], categorical=[CategoricalColumn(name="c")])


def of_csv(path: Path, lines: list[str], schema: SchemaConfig = SCHEMA) -> list[Row]:
    return rows_of(cut_csv_blocks(found(write_lines(path / "a.csv", lines)), schema, 16))


def of_parquet(path: Path, columns: dict[str, object], schema: SchemaConfig = SCHEMA) -> list[Row]:
    return rows_of(blocks_of_parquet(path, columns, schema))


def blocks_of_parquet(path: Path, columns: dict[str, object], schema: SchemaConfig = SCHEMA) -> list[Block]:
    parquet.write_table(pa.table(columns), path / "a.parquet")
    return list(cut_parquet_blocks(found(path / "a.parquet"), schema, 3))


def test_blank_and_nan_are_missing_numbers_and_text_stays_as_it_is(tmp_path: Path) -> None:
    rows = of_csv(tmp_path, ["label,x,c", "1,,", '0.0,nan,""', "1.0,NaN,nan", "0,+1.5, a ", '0,-.5e1,"a,""b"""'])
    assert [row.label for row in rows] == [1, 0, 1, 0, 0]
    assert [row.dense[0] for row in rows] == [None, None, None, 1.5, -5]
    assert [row.categorical[0] for row in rows] == [None, None, "nan", " a ", 'a,"b"']


def test_only_the_columns_of_the_schema_are_read_wherever_they_stand(tmp_path: Path) -> None:
    rows = of_csv(tmp_path, ["other,c,x,label,", "\u00e9,a,1,0,z", ",b,2,1,"])
    assert rows == [Row(0, None, (1,), ("a",)), Row(1, None, (2,), ("b",))]


def test_a_header_without_rows_is_a_file_without_rows(tmp_path: Path) -> None:
    assert of_csv(tmp_path, ["label,x,c"]) == []
    assert (
        of_parquet(
            tmp_path,
            {"label": pa.array([], pa.int8()), "x": pa.array([], pa.float32()), "c": pa.array([], pa.string())},
        )
        == []
    )


def test_a_blank_part_of_a_list_is_a_missing_value(tmp_path: Path) -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="c", type="integer", multi_hot=True, separator=";")])
    rows = of_csv(tmp_path, ["label,c", "0,1;;2", "0,;", "0,", "0,7"], schema)
    assert [row.categorical[0] for row in rows] == [(1, None, 2), (None, None), (None,), (7,)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, 3], pa.uint8()),
        pa.array([1, None, 3], pa.float16()),
        pa.array([1, float("nan"), 3], pa.float32()),
        pa.array([1, None, 3], pa.decimal128(10, 2)),
        pa.array([1, None, 3], pa.int64()),
    ],
)
def test_numbers_of_any_type_are_dense(tmp_path: Path, values: pa.Array) -> None:
    rows = of_parquet(tmp_path, {"label": [True, False, True], "x": values, "c": ["", None, "b"]})
    assert [row.dense[0] for row in rows] == [1, None, 3]
    assert [row.categorical[0] for row in rows] == ["", None, "b"]


def test_bool_is_dense_and_a_column_of_nulls_is_all_missing(tmp_path: Path) -> None:
    rows = of_parquet(tmp_path, {"label": [1.0, 0.0], "x": [True, False], "c": pa.nulls(2)})
    assert rows == [Row(1, None, (1,), (None,)), Row(0, None, (0,), (None,))]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", None, "a", "b"], pa.large_string()),
        pa.array([b"b", None, b"a", b"b"], pa.binary()),
        pa.array(["b", None, "a", "b"], pa.string_view()),
        pa.array([b"b", None, b"a", b"b"], pa.binary_view()),
        pa.array(["b", None, "a", "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([1, None, 2, 3]), pa.array(["z", "b", "a", "b"])),
    ],
)
def test_strings_of_any_type_are_categories(tmp_path: Path, values: pa.Array) -> None:
    rows = of_parquet(tmp_path, {"label": [0, 1, 0, 1], "x": [1, 2, 3, 4], "c": values})
    assert [row.categorical[0] for row in rows] == ["b", None, "a", "b"]


def test_a_dictionary_with_nulls_and_repeated_values_is_cleaned() -> None:
    column = encode_distinct_values(
        pa.DictionaryArray.from_arrays([1, 3, 2, 4, None], pa.array(["z", "b", "a", None, "b"]))
    )
    check_distinct(column)
    assert column.distinct.to_list() == ["a", "b"]
    assert column.codes.tolist() == [1, -1, 0, 1, -1]


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])
def test_a_missing_list_is_one_missing_value_and_an_empty_one_is_none(tmp_path: Path, kind: pa.DataType) -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="c", type="integer", multi_hot=True)])
    lists = [[5, 6], None, [6, None]] if pa.types.is_fixed_size_list(kind) else [[5, 6], None, [], [6, None]]
    rows = of_parquet(tmp_path, {"label": [0] * len(lists), "c": pa.array(lists, kind)}, schema)
    assert [row.categorical[0] for row in rows] == [(None,) if values is None else tuple(values) for values in lists]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string())])
def test_bad_rows_next_to_strings_of_any_type_are_left_out(tmp_path: Path, kind: pa.DataType) -> None:
    columns = {"label": [0, 2, 1], "x": [1, 1, 1], "c": pa.array(["a", "bad", "b"], pa.string()).cast(kind)}
    rows, good = good_rows_of(blocks_of_parquet(tmp_path, columns))
    assert [row.categorical[0] for row in rows] == ["a", "b"]
    assert good == [True, False, True]


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.binary_view()])
def test_lists_hold_strings_of_any_type(tmp_path: Path, kind: pa.DataType) -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="c", multi_hot=True)])
    lists = pa.array([["a", "b"], None, [], ["b", None]], pa.list_(kind))
    rows = of_parquet(tmp_path, {"label": [0, 0, 0, 0], "c": lists}, schema)
    assert [row.categorical[0] for row in rows] == [("a", "b"), (None,), (), ("b", None)]


def test_several_faults_of_one_row_are_one_bad_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["label,x,c", "2,inf,a", "0,1,b", "0,y,a"])
    (block,) = cut_csv_blocks(found(path), SCHEMA)
    parsed = block.parse(True)
    assert [(fault.line, fault.field) for fault in parsed.faults] == [(2, "label"), (4, "x")]
    assert parsed.good is not None
    assert parsed.good.tolist() == [False, True, False]


def test_parsing_stops_at_the_first_bad_row_whatever_its_column(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", ["label,x,c", "0,1,a", "0,word,a", "2,1,a", "too,few"])
    (block,) = cut_csv_blocks(found(path), SCHEMA)
    with pytest.raises(DataError, match=r"line 3, x: 'word' is not a number"):
        block.parse(False)


def test_files_of_every_format_follow_each_other(tmp_path: Path) -> None:
    lines = criteo_lines(30)
    write_lines(tmp_path / "b.tsv", lines[:10])
    write_lines(tmp_path / "a.tsv", lines[10:])
    write_lines(tmp_path / "all.tsv", lines)
    config = DataConfig(train=["b.tsv", "a.tsv"])
    files = find_files(config.train, "data.train", None, tmp_path)
    rows = [row for table in tables_of(config, files) for row in plain_rows(table)]
    assert rows == rows_of(cut_blocks(config, find_files(["all.tsv"], "data.train", None, tmp_path)))
    assert len(rows) == 30


def test_the_weight_column_of_the_job_goes_before_that_of_the_schema(tmp_path: Path) -> None:
    schema = SchemaConfig(weight="w", dense=[DenseColumn(name="x")])
    write_lines(tmp_path / "a.csv", ["label,x,w,v", "0,1,2,3"])
    config = DataConfig(train=["a.csv"], format="csv", schema=schema, weight_column="v")
    (table,) = tables_of(config, find_files(config.train, "data.train", None, tmp_path))
    assert plain_rows(table) == [Row(0, 3, (1,), ())]


def test_spaces_around_numbers_of_csv_are_ignored_and_those_of_text_are_not(tmp_path: Path) -> None:
    schema = SCHEMA.model_copy(
        update={"categorical": [*SCHEMA.categorical, CategoricalColumn(name="i", type="integer")]}
    )
    rows = of_csv(tmp_path, ["label,x,c,i", " 1, 2.5 ,a, 7", "0,3, a ,8 ", "0 ,,b,"], schema)
    assert [row.label for row in rows] == [1, 0, 0]
    assert [row.dense[0] for row in rows] == [2.5, 3, None]
    assert [row.categorical for row in rows] == [("a", 7), (" a ", 8), ("b", None)]


def test_words_of_the_schema_are_missing_values_in_every_column_of_csv(tmp_path: Path) -> None:
    schema = SchemaConfig.model_validate(
        {
            "missing": ["NA", " ?"],
            "dense": [{"name": "x"}],
            "categorical": [{"name": "c"}, {"name": "l", "multi_hot": True}],
        }
    )
    lines = ["label,x,c,l", '0,NA,"NA",NA', "1,2, ?,a|NA", "1,3,?,b"]
    rows = rows_of(cut_csv_blocks(found(write_lines(tmp_path / "a.csv", lines)), schema, 1000))
    assert [row.dense for row in rows] == [(None,), (2.0,), (3.0,)]
    assert [row.categorical for row in rows] == [(None, (None,)), (None, ("a", "NA")), ("?", ("b",))]


def test_a_label_that_is_missing_by_a_word_is_an_error(tmp_path: Path) -> None:
    schema = SchemaConfig.model_validate({"missing": ["NA"], "dense": [{"name": "x"}]})
    with pytest.raises(DataError, match="line 2, label"):
        rows_of(cut_csv_blocks(found(write_lines(tmp_path / "a.csv", ["label,x", "NA,1"])), schema, 1000))
