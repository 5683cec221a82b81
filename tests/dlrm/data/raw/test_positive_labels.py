"""Labels of columns that hold other values than 0 and 1."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.text.csv import cut_csv_blocks
from dlrm.data.raw.typed.parquet import cut_parquet_blocks
from tests.dlrm.data.raw.criteo_files import write_lines
from tests.dlrm.data.raw.plain import found, rows_of


def schema_of(positive: str, **fields: object) -> SchemaConfig:
    return SchemaConfig.model_validate({"label": "y", "positive": positive, "dense": [{"name": "x"}], **fields})


def of_csv(path: Path, texts: list[str], positive: str) -> list[float]:
    lines = ["y,x", *(f"{text},1" for text in texts)]
    blocks = cut_csv_blocks(found(write_lines(path / "a.csv", lines)), schema_of(positive), 16)
    return [row.label for row in rows_of(blocks)]


def of_parquet(path: Path, values: pa.Array, positive: str) -> list[float]:
    parquet.write_table(pa.table({"y": values, "x": [1.0] * len(values)}), path / "a.parquet")
    return [row.label for row in rows_of(cut_parquet_blocks(found(path / "a.parquet"), schema_of(positive)))]


@pytest.mark.parametrize(
    ("texts", "positive", "labels"),
    [
        (["yes", "no", "Yes", '" yes"', " yes "], "yes", [1, 0, 0, 1, 1]),
        ([" yes", "yes", " no"], " yes", [1, 1, 0]),
        (["2", "1", "2.0", "02", "two"], "2", [1, 0, 1, 1, 0]),
        (["2", " 2", "2.0 ", " 1"], "2", [1, 1, 1, 0]),
        ([" true", "True ", "false"], "true", [1, 1, 0]),
        (["2", "2.0"], "2.0", [1, 1]),
        # Of the files of several days some have booleans, and others 1 and 0.
        (["True", "FALSE", " true", "1", "0.0", "1.0", "yes"], "true", [1, 0, 1, 1, 0, 1, 0]),
        (["True", "false", "1", "0"], "0", [0, 1, 0, 1]),
        (["True", "false", "3"], "> 0", [1, 0, 1]),
        (["-1", "1"], "-1", [1, 0]),
        (["<=50K", ">50K"], ">50K", [0, 1]),
        (["4", "3.5", "5", "4.0 "], ">= 4", [1, 0, 1, 1]),
        (["0", "1", "2e1"], ">0", [0, 1, 1]),
        (["0.3", "0.30", "0.31"], "<= 0.3", [1, 1, 0]),
        # Labels that name ranges themselves, and one that is the same text.
        (["<50", ">50", ">50"], ">50", [0, 1, 1]),
        (["<= 4", "> 4", "5", "4"], "> 4", [0, 1, 1, 0]),
    ],
)
def test_text_of_csv_is_compared_as_text_number_or_boolean(
    tmp_path: Path, texts: list[str], positive: str, labels: list[float]
) -> None:
    assert of_csv(tmp_path, texts, positive) == labels


@pytest.mark.parametrize(
    ("values", "positive", "labels"),
    [
        (pa.array(["a", "b"]), "b", [0, 1]),
        (pa.array(["a", "b"]).dictionary_encode(), "b", [0, 1]),
        (pa.array([b"a", b"b"]), "b", [0, 1]),
        (pa.array([2, 3], pa.int8()), "2", [1, 0]),
        (pa.array([2, 3]).dictionary_encode(), "3", [0, 1]),
        (pa.array([2.0, 2.5]), "2.5", [0, 1]),
        (pa.array([Decimal("2.00"), Decimal("3.00")]), "2", [1, 0]),
        (pa.array([True, False]), "true", [1, 0]),
        (pa.array([True, False]), "false", [0, 1]),
        (pa.array([3, 4, 5], pa.int8()), ">= 4", [0, 1, 1]),
        (pa.array([3, 4]).dictionary_encode(), "< 4", [1, 0]),
        (pa.array([Decimal("3.5"), Decimal("4.0")]), "> 3.5", [0, 1]),
        (pa.array(["3.5", "4"]), ">= 4", [0, 1]),
        # 0.3 of float32 is above 0.3 of float64.
        (pa.array([0.3, 0.4], pa.float32()), "<= 0.3", [1, 0]),
        (pa.array([0.1, 0.4], pa.float32()), "0.1", [1, 0]),
    ],
)
def test_typed_labels_are_compared_by_their_value(
    tmp_path: Path, values: pa.Array, positive: str, labels: list[float]
) -> None:
    assert of_parquet(tmp_path, values, positive) == labels


def test_a_missing_label_stays_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv, line 3, y: the label is missing"):
        of_csv(tmp_path, ["yes", ""], "yes")
    with pytest.raises(DataError, match="line 3, y: neither UTF-8 text nor a number"):
        of_csv(tmp_path, ["2", "nan"], "2")
    with pytest.raises(DataError, match="line 3, y: neither UTF-8 text nor a number"):
        of_csv(tmp_path, ["2", "nan"], "> 2")
    with pytest.raises(DataError, match="line 3, y: 'two' is no number, as"):
        of_csv(tmp_path, ["2", "two"], "> 1")
    for values in (pa.array(["yes", None]), pa.array([b"yes", b"\xff"])):
        with pytest.raises(DataError, match="line 2, y: "):
            of_parquet(tmp_path, values, "yes")
    with pytest.raises(DataError, match="line 1, y: "):
        of_parquet(tmp_path, pa.array([float("nan"), 1.0]), "1")


def test_a_word_is_no_value_of_a_numeric_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"y: the column's type is int64 \(valid: text, or a number .* is 'yes'"):
        of_parquet(tmp_path, pa.array([0, 1]), "yes")


def test_a_first_line_of_words_is_a_header_only_if_it_names_the_label(tmp_path: Path) -> None:
    schema = schema_of("yes", columns=["y", "x"])
    path = write_lines(tmp_path / "a.csv", ["yes,1", "no,2"])
    assert [row.label for row in rows_of(cut_csv_blocks(found(path), schema))] == [1, 0]
    path = write_lines(tmp_path / "b.csv", ["y,x", "no,2"])
    with pytest.raises(DataError, match="the first line is a header"):
        rows_of(cut_csv_blocks(found(path), schema))
