"""Rows that are read to be scored: label and weight may be missing, and are not looked at."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.block import Block
from dlrm.data.raw.text.criteo import cut_criteo_blocks
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.criteo_files import criteo_line, criteo_lines, with_value, write_lines
from tests.dlrm.data.raw.plain import Row, found, good_rows_of, rows_of

SCHEMA = SchemaConfig(
    label="click", weight="worth", dense=[DenseColumn(name="x")], categorical=[CategoricalColumn(name="c")]
)


def features_of(rows: list[Row]) -> list[tuple[object, object]]:
    assert all(np.isnan(row.label) and row.weight is None for row in rows)
    return [(row.dense, row.categorical) for row in rows]


def test_criteo_lines_of_39_and_of_40_columns_hold_the_same_features(tmp_path: Path) -> None:
    lines = criteo_lines(50)
    labelled = [
        (row.dense, row.categorical) for row in rows_of(cut_criteo_blocks(found(write_lines(tmp_path / "a", lines))))
    ]
    bare = [line.partition("\t")[2] for line in lines]
    for others in (bare, lines, [f"\t{line}" for line in bare], [f"maybe\t{line}" for line in bare]):
        file = found(write_lines(tmp_path / "b", others))
        for block_bytes in (1000, 1 << 20):
            assert features_of(rows_of(cut_criteo_blocks(file, block_bytes, with_labels=False))) == labelled


BARE = criteo_line().partition("\t")[2]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (BARE.rpartition("\t")[0], None),
        (f"1\t{BARE}", None),
        ("", None),
        (with_value(1, "x").partition("\t")[2], "I1"),
        (with_value(13, "1.5").partition("\t")[2], "I13"),
        (with_value(14, "xyz").partition("\t")[2], "C1"),
        (with_value(39, "-1f").partition("\t")[2], "C26"),
    ],
)
def test_a_bad_criteo_line_without_a_label_is_named(tmp_path: Path, line: str, field: str | None) -> None:
    file = found(write_lines(tmp_path / "bad", [BARE, BARE, line, BARE]))
    with pytest.raises(DataError) as caught:
        rows_of(cut_criteo_blocks(file, with_labels=False))
    assert (caught.value.line, caught.value.field) == (3, field)
    assert good_rows_of(cut_criteo_blocks(file, with_labels=False))[1] == [True, True, False, True]


def test_a_first_criteo_line_of_neither_length_says_which_there_are(tmp_path: Path) -> None:
    file = found(write_lines(tmp_path / "bad", [BARE.rpartition("\t")[0]]))
    with pytest.raises(DataError, match=r"line 1: has 38 tab-separated columns .*; or 39, without the label"):
        rows_of(cut_criteo_blocks(file, with_labels=False))


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (["x,c", "1.5,a", ",b"], None),
        (["c,other,x", "a,?,1.5", "b,?,"], None),
        (["click,worth,x,c", "?,-1,1.5,a", ",,,b"], None),
        (["1.5,a", ",b"], ["click", "x", "c", "worth"]),
        (["?,1.5,a,-1", ",,b,"], ["click", "x", "c", "worth"]),
    ],
)
def test_csv_with_and_without_labels_and_headers(tmp_path: Path, lines: list[str], columns: list[str] | None) -> None:
    schema = SCHEMA.model_copy(update={"columns": columns})
    file = found(write_lines(tmp_path / "rows.csv", lines))
    expected = [((1.5,), ("a",)), ((None,), ("b",))]
    assert features_of(rows_of(cut_csv_blocks(file, schema, with_labels=False))) == expected


def test_csv_lines_of_another_length_than_the_first_are_named(tmp_path: Path) -> None:
    schema = SCHEMA.model_copy(update={"columns": ["click", "x", "c", "worth"]})
    for lines, message in [
        (["1.5,a", "1,1.5,a,1"], "line 2: has 4 columns .valid: 2, as the first line has, without the label"),
        (["1,1.5,a"], "line 1: has 3 columns .valid: 4, as the schema lists"),
        (["1,1.5,a,1", "1.5,a"], "line 2: has 2 columns .valid: 4"),
    ]:
        file = found(write_lines(tmp_path / "rows.csv", lines))
        with pytest.raises(DataError, match=message):
            rows_of(cut_csv_blocks(file, schema, with_labels=False))


def test_parquet_without_labels(tmp_path: Path) -> None:
    def blocks(**columns: list[object]) -> list[Block]:
        parquet.write_table(pa.table(columns), tmp_path / "rows")
        return list(cut_parquet_blocks(found(tmp_path / "rows"), SCHEMA, with_labels=False))

    expected = [((1.5,), ("a",)), ((None,), ("b",))]
    assert features_of(rows_of(blocks(c=["a", "b"], x=[1.5, None]))) == expected
    assert features_of(rows_of(blocks(c=["a", "b"], x=[1.5, None], click=["?", None]))) == expected
    with pytest.raises(DataError, match="c: there is no such column"):
        blocks(x=[1.5, None])


def test_a_file_of_one_column_has_quoted_blanks_for_missing_values(tmp_path: Path) -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="c")])
    file = found(write_lines(tmp_path / "rows.csv", ["c", "a", '""', "b"]))
    rows = rows_of(cut_csv_blocks(file, schema, with_labels=False))
    assert [row.categorical for row in rows] == [("a",), (None,), ("b",)]
    file = found(write_lines(tmp_path / "rows.csv", ["c", "a", "", "b"]))
    with pytest.raises(DataError, match=r'line 3: the line is blank .*"" is a missing value'):
        rows_of(cut_csv_blocks(file, schema, with_labels=False))


def test_a_header_of_files_whose_schema_lists_the_columns_gives_the_names(tmp_path: Path) -> None:
    """A model of files without a header is given some with one, with the label or without, in any order."""
    schema = SCHEMA.model_copy(update={"columns": ["click", "worth", "x", "c"]})
    expected = features_of(
        rows_of(cut_csv_blocks(found(write_lines(tmp_path / "a", ["1,1,3,u", "0,1,4,v"])), schema, with_labels=False))
    )
    for lines in (["click,worth,x,c", "1,1,3,u", "0,1,4,v"], ["c,x", "u,3", "v,4"]):
        file = found(write_lines(tmp_path / "b", lines))
        assert features_of(rows_of(cut_csv_blocks(file, schema, with_labels=False))) == expected
