"""What preparing makes of rows, against the same worked out value by value."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import HashedVocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, PackedMeta, compute_checksum, read_meta
from dlrm.data.raw.files import find_files
from dlrm.data.split import split_by_hash
from tests.dlrm.data.prepare.table_strategies import (
    MadeTable,
    data_config,
    expected_dense,
    expected_ids,
    made_tables,
    prepare_all,
    read_split,
)
from tests.dlrm.data.raw.plain import tables_of


def held_out(num_rows: int, fraction: float) -> set[int]:
    return set(split_by_hash(num_rows, fraction)[1].tolist())


def tail(num_rows: int, fraction: float) -> set[int]:
    return set(range(num_rows - round(num_rows * fraction), num_rows))


def check(table: MadeTable, output: Path, meta: PackedMeta, evaluation: set[int], min_count: int) -> None:
    """That `output` holds the rows of `table`, those of the numbers `evaluation` held out."""
    is_training = [row not in evaluation for row in range(table.num_rows)]
    ids = [
        expected_ids(table.columns[column.name], is_training, min_count, column.multi_hot)
        for column in table.schema.categorical
    ]
    dense = [
        feature
        for column in table.schema.dense
        for feature in expected_dense(table.columns[column.name], is_training, column.transform)
    ]
    for split in ("train", "eval"):
        rows = [row for row in range(table.num_rows) if is_training[row] == (split == "train")]
        packed = read_split(output, meta, split)
        assert packed.labels.tolist() == [table.columns["label"][row] for row in rows]
        assert packed.bags == [[feature[row] for row in rows] for feature in ids]
        # Rounding of the mean is relative to the largest values; those beyond float32's range are at its end.
        expected = np.array([[feature[row] for feature in dense] for row in rows]).reshape(len(rows), len(dense))
        largest = float(np.finfo(np.float32).max)
        expected = np.clip(expected, -largest, largest)
        np.testing.assert_allclose(packed.dense, expected, rtol=2e-5, atol=2e-5)
        weights = table.columns.get("weight")
        assert (packed.weights is None) == (weights is None)
        if packed.weights is not None and weights is not None:
            assert packed.weights.tolist() == [weights[row] for row in rows]
            assert meta.splits[split].mean_weight == pytest.approx(float(packed.weights.mean(dtype=np.float64)))
        else:
            assert meta.splits[split].mean_weight == 1
        assert meta.splits[split].num_positives == int(packed.labels.sum())
        weights = np.ones(len(packed.labels)) if packed.weights is None else packed.weights.astype(np.float64)
        if weights.sum():
            assert meta.splits[split].label_rate == pytest.approx(float(weights @ packed.labels / weights.sum()))


@settings(max_examples=15)
@given(
    table=made_tables(),
    min_count=st.integers(1, 3),
    kind=st.sampled_from(["hash", "tail"]),
    row_group_size=st.integers(1, 50),
)
def test_any_table_is_packed_row_by_row(table: MadeTable, min_count: int, kind: str, row_group_size: int) -> None:
    fields: dict[str, Any] = {"split": kind, "eval_fraction": 0.4, "vocabulary": {"min_count": min_count}}
    evaluation = (held_out if kind == "hash" else tail)(table.num_rows, 0.4)
    with tempfile.TemporaryDirectory() as directory:
        config = data_config(table.schema, [table.write(Path(directory) / "rows", row_group_size)], **fields)
        output = Path(directory) / "packed"
        if len(evaluation) in (0, table.num_rows):
            with pytest.raises(DataError, match=r"data\.eval_fraction"):
                prepare_all(config, output)
            return
        meta = prepare_all(config, output)
        check(table, output, meta, evaluation, min_count)
        check_as_encoders_do(config, output, meta, evaluation)


def check_as_encoders_do(config: DataConfig, output: Path, meta: PackedMeta, evaluation: set[int]) -> None:
    """That the encoders beside the rows make the same of raw rows, to the last bit."""
    encoders = Encoders.load(output / ENCODERS)
    blocks = [encoders.encode(table) for table in tables_of(config, find_files(config.train, "", None, Path()))]
    dense = np.concatenate([block.dense for block in blocks])
    is_held_out = np.isin(np.arange(len(dense)), list(evaluation))
    for split, is_in in (("train", ~is_held_out), ("eval", is_held_out)):
        np.testing.assert_array_equal(read_split(output, meta, split).dense, dense[is_in])


@settings(max_examples=4)
@given(table=made_tables(), row_group_size=st.integers(1, 9))
def test_the_same_files_give_the_same_bytes_with_any_number_of_threads(table: MadeTable, row_group_size: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = table.write(Path(directory) / "rows", row_group_size)
        config = data_config(table.schema, [path], split="tail", eval_fraction=0.5)
        for num_threads in (1, 4):
            prepare_all(config, Path(directory) / f"packed-{num_threads}", num_threads=num_threads)
        metas = [(Path(directory) / f"packed-{num_threads}" / "meta.json").read_bytes() for num_threads in (1, 4)]
        assert metas[0] == metas[1]


COUNTS = MadeTable(
    SchemaConfig(
        categorical=[
            CategoricalColumn(name="a"),
            CategoricalColumn(name="b"),
            CategoricalColumn(name="c", type="integer"),
        ]
    ),
    {
        "label": [0, 1] * 10,
        "a": ["x"] * 10 + ["y"] * 10,
        "b": ["x", "y"] * 10,
        "c": list(range(20)),
    },
)


def test_columns_may_count_and_hash_otherwise_than_the_others(tmp_path: Path) -> None:
    vocabulary = {"min_count": 3, "columns": {"b": {"min_count": 100}, "c": {"hash_size": 50}}}
    config = data_config(
        COUNTS.schema, [COUNTS.write(tmp_path / "rows")], split="tail", eval_fraction=0.2, vocabulary=vocabulary
    )
    meta = prepare_all(config, tmp_path / "packed")
    assert [feature.num_ids for feature in meta.features] == [4, 2, 50]
    packed = read_split(tmp_path / "packed", meta, "train")
    hashed = HashedVocabulary.for_column(2, 50)
    table = next(tables_of(config, find_files(config.train, "", None, Path())))
    assert [row[0] for row in packed.bags[2]] == hashed.encode(table.categorical[2].distinct)[:16].tolist()


def test_a_value_counts_once_a_row_however_often_the_row_repeats_it(tmp_path: Path) -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="tags", multi_hot=True)])
    tags = [["a", "a", "a", "b"], ["b"], ["b", "c"], ["c"], None, []]
    table = MadeTable(schema, {"label": [0, 1, 0, 1, 0, 1], "tags": tags})
    config = data_config(schema, [table.write(tmp_path / "rows")], eval=[str(tmp_path / "rows")])
    meta = prepare_all(config, tmp_path / "packed")
    assert read_split(tmp_path / "packed", meta, "train").bags == [[[0, 0, 0, 2], [2], [2, 3], [3], [1], []]]


def test_evaluation_files_are_all_held_out_and_nothing_is_fitted_on_them(tmp_path: Path) -> None:
    table = MadeTable(
        SchemaConfig(dense=[DenseColumn(name="d")], categorical=[CategoricalColumn(name="c")]),
        {"label": [0, 1, 0, 1], "d": [1.0, 3.0, 100.0, None], "c": ["a", "a", "b", "b"]},
    )
    train, evaluation = table.rows(0, 2).write(tmp_path / "train"), table.rows(2, 4).write(tmp_path / "eval")
    meta = prepare_all(data_config(table.schema, [train], eval=[str(evaluation)]), tmp_path / "packed")
    check(table, tmp_path / "packed", meta, evaluation={2, 3}, min_count=2)
    assert meta.dense == ["d"]
    assert meta.features[0].num_ids == 3
    assert meta.sources == [str(train), str(evaluation)]


def test_several_files_are_one_run_of_rows(tmp_path: Path) -> None:
    table = MadeTable(
        SchemaConfig(dense=[DenseColumn(name="d")]), {"label": [0, 1] * 50, "d": [float(i) for i in range(100)]}
    )
    parts = [table.rows(start, start + 25).write(tmp_path / f"rows-{start}") for start in range(0, 100, 25)]
    meta = prepare_all(data_config(table.schema, parts, eval_fraction=0.3), tmp_path / "packed")
    check(table, tmp_path / "packed", meta, held_out(100, 0.3), min_count=2)


def test_a_column_of_one_value_is_standardised_to_zero(tmp_path: Path) -> None:
    table = MadeTable(SchemaConfig(dense=[DenseColumn(name="d")]), {"label": [0, 1] * 50, "d": [0.1] * 100})
    config = data_config(table.schema, [table.write(tmp_path / "rows", 7)])
    meta = prepare_all(config, tmp_path / "packed")
    assert not read_split(tmp_path / "packed", meta, "train").dense.any()


def test_meta_json_describes_the_files_correctly(tmp_path: Path) -> None:
    meta = prepare_all(data_config(COUNTS.schema, [COUNTS.write(tmp_path / "rows")]), tmp_path / "packed")
    assert read_meta(tmp_path / "packed") == meta
    present = {str(p.relative_to(tmp_path / "packed")) for p in (tmp_path / "packed").rglob("*") if p.is_file()}
    assert present == {*meta.files, "meta.json"}
    for name, file_meta in meta.files.items():
        assert (tmp_path / "packed" / name).stat().st_size == file_meta.num_bytes
    before = compute_checksum(meta)
    (tmp_path / "packed").rename(tmp_path / "elsewhere")
    again = prepare_all(data_config(COUNTS.schema, [tmp_path / "rows"]), tmp_path / "packed")
    assert compute_checksum(again) == before


@pytest.mark.parametrize(("num_rows", "id_type"), [(2**31, "int32"), (2**31 + 1, "int64")])
def test_ids_take_eight_bytes_where_four_do_not_hold_them(tmp_path: Path, num_rows: int, id_type: str) -> None:
    file = COUNTS.write(tmp_path / "rows")
    meta = prepare_all(data_config(COUNTS.schema, [file], vocabulary={"hash_size": num_rows}), tmp_path / "packed")
    assert meta.id_type == id_type
    hashed = HashedVocabulary.for_column(0, num_rows).encode(pl.Series(["x", "y"])).tolist()
    for split in ("train", "eval"):
        bags = read_split(tmp_path / "packed", meta, split).bags
        assert {row[0] for row in bags[0]} <= set(hashed)
