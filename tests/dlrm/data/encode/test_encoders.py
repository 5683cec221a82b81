from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.encode.encoders import DenseEncoder, Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary, HashedVocabulary
from dlrm.data.raw.block import CategoricalValues, RawTable

SCHEMA = SchemaConfig(
    dense=[DenseColumn(name="x"), DenseColumn(name="n", transform="log")],
    categorical=[
        CategoricalColumn(name="tags", multi_hot=True),
        CategoricalColumn(name="id", type="integer"),
        CategoricalColumn(name="hashed"),
    ],
)


@pytest.fixture
def encoders() -> Encoders:
    tags = CountedVocabulary.build(pl.Series(["a", "b", "c"]), np.array([1, 5, 9]), min_count=2)
    ids = CountedVocabulary.build(pl.Series([-7, 3]), np.array([2, 4]), min_count=1)
    dense = [
        DenseEncoder(column=SCHEMA.dense[0], mean=1.0, standard_deviation=2.0, has_indicator=True),
        DenseEncoder(column=SCHEMA.dense[1]),
    ]
    return Encoders(SCHEMA, dense, [tags, ids, HashedVocabulary.for_column(2, 10)])


@pytest.fixture
def table() -> RawTable:
    return RawTable(
        labels=np.array([0, 1, 0], dtype=np.float32),
        weights=np.array([1, 2, 0], dtype=np.float32),
        dense=[np.array([3.0, np.nan, 1.0]), np.array([0.0, np.nan, 0.0])],
        categorical=[
            CategoricalValues(np.array([1, 0, -1], np.int32), pl.Series(["a", "c"]), np.array([2, 0, 1], np.int32)),
            CategoricalValues(np.array([0, -1, 1], np.int32), pl.Series([-7, 99])),
            CategoricalValues(np.array([-1, 0, 0], np.int32), pl.Series(["b"])),
        ],
    )


def test_a_table_becomes_rows_feature_by_feature(encoders: Encoders, table: RawTable) -> None:
    rows = encoders.encode(table)
    hashed = int(encoders.vocabularies[2].encode(pl.Series(["b"]))[0])
    assert rows.ids.lengths.tolist() == [[2, 0, 1], [1, 1, 1], [1, 1, 1]]
    assert rows.ids.values.tolist() == [2, 0, 1, 3, 1, 0, 0, hashed, hashed]
    assert rows.dense.tolist() == [[1, 0, 0], [0, 1, -1], [0, 0, 0]]
    assert rows.labels.tolist() == [0, 1, 0]
    assert rows.weights is not None
    assert rows.weights.tolist() == [1, 2, 0]


def test_the_schema_of_the_model_follows_from_the_encoders(encoders: Encoders) -> None:
    assert encoders.dense_names == ["x", "x missing", "n"]
    schema = encoders.schema_of_rows
    assert schema.num_dense == 3
    assert [(f.name, f.num_ids, f.is_multi_hot) for f in schema.features] == [
        ("tags", 4, True),
        ("id", 4, False),
        ("hashed", 10, False),
    ]


def test_encoders_are_read_as_they_were_written(encoders: Encoders, table: RawTable, tmp_path: Path) -> None:
    encoders.save(tmp_path / "one")
    loaded = Encoders.load(tmp_path / "one")
    assert loaded.schema == encoders.schema
    assert list(loaded.dense) == list(encoders.dense)
    np.testing.assert_array_equal(loaded.encode(table).ids.values, encoders.encode(table).ids.values)
    np.testing.assert_array_equal(loaded.encode(table).dense, encoders.encode(table).dense)
    loaded.save(tmp_path / "two")
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_empty_vocabularies_keep_their_type(tmp_path: Path) -> None:
    none = [
        CountedVocabulary.build(pl.Series([], dtype=kind), np.empty(0, dtype=np.int64), min_count=1)
        for kind in (pl.String, pl.Int64)
    ]
    columns = [CategoricalColumn(name="a"), CategoricalColumn(name="b", type="integer")]
    Encoders(SchemaConfig(categorical=columns), [], none).save(tmp_path)
    loaded = Encoders.load(tmp_path).vocabularies
    extended = [
        loaded[0].extend(pl.Series(["x"]), np.array([1]), 1),  # type: ignore[attr-defined]
        loaded[1].extend(pl.Series([4]), np.array([1]), 1),  # type: ignore[attr-defined]
    ]
    assert [vocabulary.num_ids for vocabulary in extended] == [3, 3]


def test_a_table_without_dense_or_categorical_columns_is_encoded() -> None:
    labels = np.zeros(2, dtype=np.float32)
    dense_only = Encoders(SchemaConfig(dense=[SCHEMA.dense[1]]), [DenseEncoder(column=SCHEMA.dense[1])], [])
    rows = dense_only.encode(RawTable(labels, None, [np.zeros(2)], []))
    assert (rows.dense.shape, rows.id_matrix.shape) == ((2, 1), (0, 2))
    ids_only = Encoders(
        SchemaConfig(categorical=[SCHEMA.categorical[2]]), [], [HashedVocabulary.for_column(0, hash_size=4)]
    )
    column = CategoricalValues(np.array([-1, -1], np.int32), pl.Series([], dtype=pl.String))
    rows = ids_only.encode(RawTable(labels, None, [], [column]))
    assert (rows.dense.shape, rows.id_matrix.tolist()) == ((2, 0), [[0, 0]])
