"""Columns that are used several times: as numbers, ids, ranges and parts of times, from raw files to packed rows."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import RangeVocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, compute_rows_checksum, read_meta
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare import counting as quantiles
from dlrm.data.prepare import fit
from dlrm.data.prepare.fit import check_base, check_extends, open_base
from tests.dlrm.data.prepare.table_strategies import prepare_all

SCHEMA: dict[str, Any] = {
    "label": "income",
    "positive": ">50K",
    "dense": [{"name": "age"}],
    "categorical": [
        {"name": "age", "bucketize": 4},
        {"name": "age", "type": "integer"},
        {"name": "children", "bucketize": 16},
        {"name": "seen", "time_part": "hour"},
        {"name": "seen", "time_part": "weekday"},
    ],
}
START = datetime(2024, 1, 1, tzinfo=UTC)


def make_columns(num_rows: int, seed: int = 0) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    return {
        "income": [[">50K", "<=50K"][number] for number in random.integers(0, 2, num_rows)],
        "age": [None if row % 9 == 8 else int(age) for row, age in enumerate(random.integers(17, 90, num_rows))],
        "children": random.integers(0, 5, num_rows).tolist(),
        "seen": [START + timedelta(hours=int(hours)) for hours in random.integers(0, 999, num_rows)],
    }


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=100)
        return path
    seen = [moment.isoformat() for moment in columns["seen"]]
    csv.write_csv(table.set_column(table.schema.get_field_index("seen"), "seen", [seen]), path)
    return path


def config_of(train: Sequence[Path], schema: dict[str, Any] = SCHEMA, **fields: Any) -> DataConfig:
    document = {"train": [str(path) for path in train], "format": train[0].suffix[1:], "schema": schema, **fields}
    return DataConfig.model_validate(document)


def prepare_columns(directory: Path, columns: dict[str, list[Any]], suffix: str = "parquet", **fields: Any) -> Path:
    directory.mkdir()
    config = config_of([write(directory / f"rows.{suffix}", columns)], vocabulary={"min_count": 1}, **fields)
    prepare_all(config, directory / "packed")
    return directory / "packed"


def test_packed_ids_are_the_range_or_the_part_of_each_value(tmp_path: Path) -> None:
    columns = make_columns(400)
    directory = prepare_columns(tmp_path / "a", columns, split="tail")
    dataset = open_packed(directory)
    assert [feature.name for feature in dataset.schema.features] == [
        "age:buckets", "age", "children:buckets", "seen:hour", "seen:weekday",
    ]  # fmt: skip
    assert [feature.num_ids for feature in dataset.schema.features][2:] == [6, 25, 8]
    rows = dataset.train.read(np.arange(360))
    assert rows.labels.tolist() == [float(income == ">50K") for income in columns["income"][:360]]
    ages, _, children, hours, weekdays = rows.id_matrix
    assert children.tolist() == [number + 1 for number in columns["children"][:360]]
    assert hours.tolist() == [moment.hour + 1 for moment in columns["seen"][:360]]
    assert weekdays.tolist() == [moment.isoweekday() for moment in columns["seen"][:360]]
    known = np.array([age is not None for age in columns["age"][:360]])
    values = np.array([age or 0 for age in columns["age"][:360]])
    assert (ages[~known] == 0).all()
    sizes = np.bincount(ages[known])[1:]
    np.testing.assert_allclose(sizes, known.sum() / 4, atol=np.bincount(values[known]).max())
    for lower in range(1, 4):
        assert values[known & (ages == lower)].max() < values[known & (ages == lower + 1)].min()


def test_ranges_are_those_of_the_training_rows_alone(tmp_path: Path) -> None:
    columns = make_columns(400)
    columns["children"] = [0, 1] * 180 + [7] * 40
    directory = prepare_columns(tmp_path / "a", columns, split="tail")
    vocabulary = Encoders.load(directory / ENCODERS).vocabularies[2]
    assert vocabulary == RangeVocabulary(edges=(1.0,))


def test_csv_and_parquet_and_any_cut_into_parts_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns(900)
    one = prepare_columns(tmp_path / "a", columns)
    other = prepare_columns(tmp_path / "b", columns, "csv")
    monkeypatch.setattr(fit, "MAX_SUMMARISED_COLUMNS", 1)
    third = prepare_columns(tmp_path / "c", columns)
    assert len({compute_rows_checksum(read_meta(path)) for path in (one, other, third)}) == 1


def test_ranges_of_more_values_than_a_summary_holds_are_about_equally_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantiles, "MAX_POINTS", 200)
    columns = make_columns(5000)
    columns["age"] = np.random.default_rng(3).normal(size=5000).tolist()
    schema = SCHEMA | {"categorical": [{"name": "age", "bucketize": 10}]}
    directory = prepare_columns(tmp_path / "a", columns, schema=schema)
    dataset = open_packed(directory)
    ids = dataset.train.read(np.arange(dataset.train.num_rows)).id_matrix[0]
    np.testing.assert_allclose(np.bincount(ids)[1:], dataset.train.num_rows / 10, rtol=0.2)


def test_an_extension_keeps_the_edges_of_its_base(tmp_path: Path) -> None:
    base = open_base(prepare_columns(tmp_path / "a", make_columns(400)))
    rows = write(tmp_path / "new.parquet", make_columns(400, seed=1) | {"children": [9] * 400})
    prepare_all(config_of([rows], vocabulary={"min_count": 1}), tmp_path / "extended", base=base)
    extended = open_base(tmp_path / "extended")
    check_extends(extended, base, tmp_path / "extended", "")
    assert extended.vocabularies[0] == base.vocabularies[0]
    assert extended.vocabularies[2:] == base.vocabularies[2:]
    alone = open_base(prepare_columns(tmp_path / "b", make_columns(400, seed=1)))
    assert alone.vocabularies[0] != base.vocabularies[0]
    with pytest.raises(DataError, match="age is encoded with other statistics"):
        check_extends(alone, base, tmp_path / "b", "")


@pytest.mark.parametrize(
    ("index", "column", "message"),
    [
        (0, {"name": "age", "bucketize": 8}, "age:buckets is divided into 8 ranges here and divided into 4 ranges"),
        (3, {"name": "seen", "time_part": "day"}, "lacks seen:hour, which the base has"),
        (1, {"name": "age"}, "age is string here and integer in the base"),
    ],
)
def test_a_base_with_other_uses_is_named_with_its_fault(
    tmp_path: Path, index: int, column: dict[str, Any], message: str
) -> None:
    base = open_base(prepare_columns(tmp_path / "a", make_columns(200)))
    categorical = [*SCHEMA["categorical"]]
    categorical[index] = column
    with pytest.raises(DataError, match=message):
        check_base(config_of([tmp_path / "a.csv"], SCHEMA | {"categorical": categorical}), base)


@pytest.mark.parametrize(
    ("positive", "words", "found"), [("yes", "no", "'<=50K', '>50K'"), (">50K", "every", "'>50K'")]
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_that_are_all_alike_name_the_positive_value_and_what_was_found(
    tmp_path: Path, positive: str, words: str, found: str, suffix: str
) -> None:
    columns = make_columns(100)
    if words == "every":
        columns["income"] = [">50K"] * 100
    with pytest.raises(DataError) as caught:
        prepare_columns(tmp_path / "a", columns, suffix, schema=SCHEMA | {"positive": positive})
    assert str(caught.value) == (
        f"data.schema.positive: {words} row has {positive!r} in the label column income "
        f"(valid: a value that some rows have and others lack; found {found})"
    )
    assert not (tmp_path / "a" / "packed").exists()


def test_edges_are_saved_exactly_and_older_encoders_without_ranges_load(tmp_path: Path) -> None:
    schema = SchemaConfig.model_validate({"categorical": [{"name": "x", "bucketize": 3}]})
    encoders = Encoders(schema, [], [RangeVocabulary(edges=(0.1 + 0.2, 1e300))])
    encoders.save(tmp_path / "a")
    assert Encoders.load(tmp_path / "a") == encoders
    (tmp_path / "encoders.json").write_text(
        '{"schema": {"label": "y", "weight": null, "dense": [], "categorical": [{"name": "c", "type": "string", '
        '"multi_hot": false, "separator": "|"}], "delimiter": ",", "columns": null}, "dense": [], '
        '"vocabularies": [{"kind": "hashed", "num_ids": 7, "key": 5}]}'
    )
    assert Encoders.load(tmp_path).schema_of_rows.features[0].name == "c"


def test_a_preparation_with_several_parts_merges_their_summaries(tmp_path: Path) -> None:
    columns = make_columns(400)
    paths = [
        write(tmp_path / f"{start}.parquet", {name: values[start : start + 100] for name, values in columns.items()})
        for start in range(0, 400, 100)
    ]
    prepare_all(config_of(paths, vocabulary={"min_count": 1}), tmp_path / "parts")
    whole = prepare_columns(tmp_path / "a", columns)
    assert open_base(tmp_path / "parts").vocabularies[0] == open_base(whole).vocabularies[0]
