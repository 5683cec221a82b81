"""Columns whose lists are sequences: from raw files to prepared rows, to a model, and to scores of rows in Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import ENCODERS, read_meta
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.fit import check_base, open_base
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.model import SavedModel
from sharding.jagged import SequenceShape
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import SIZES, made_model

NUM_ROWS = 400


def make_schema(keep: str = "last") -> dict[str, Any]:
    settings = {"multi_hot": True, "type": "integer"}
    return {
        "dense": [{"name": "age"}],
        "categorical": [
            {"name": "user"},
            {"name": "film", "type": "integer"},
            {"name": "seen", **settings, "sequence": {"target": "film", "max_length": 4, "keep": keep}},
            {"name": "left", **settings, "sequence": {"target": "film", "max_length": 2}},
        ],
    }


def draw_columns() -> dict[str, list[Any]]:
    random = np.random.default_rng(0)

    def draw_lists(longest: int) -> list[Any]:
        # Film 99 is no target, and a list may be missing.
        drawn = [random.choice([*range(20), 99], n).tolist() for n in random.integers(0, longest + 1, NUM_ROWS)]
        return [None if row % 50 == 7 else values for row, values in enumerate(drawn)]

    return {
        "label": random.integers(0, 2, NUM_ROWS).tolist(),
        "age": random.normal(size=NUM_ROWS).tolist(),
        "user": [f"u{number}" for number in random.integers(0, 30, NUM_ROWS)],
        "film": random.integers(0, 20, NUM_ROWS).tolist(),
        "seen": draw_lists(9),
        "left": draw_lists(3),
    }


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        pl.DataFrame(columns).write_ndjson(path)
    else:
        joined = {
            name: ["|".join(map(str, value)) if isinstance(value, list) else value for value in values]
            for name, values in columns.items()
        }
        pl.DataFrame(joined).write_csv(path)
    return path


def config_of(path: Path, keep: str = "last") -> DataConfig:
    document = {"train": [str(path)], "format": path.suffix[1:], "schema": make_schema(keep), "eval_fraction": 0.2}
    return DataConfig.model_validate({**document, "vocabulary": {"min_count": 1}})


def shorten(values: Sequence[int] | None, length: int, keep: str = "last") -> list[int | None]:
    """The newest values, oldest first; a missing list is one missing value."""
    if values is None:
        return [None]
    return [*values[-length:]] if keep == "last" else [*values[:length]][::-1]


@pytest.mark.parametrize("keep", ["last", "first"])
def test_lists_are_cut_to_their_newest_values_and_have_the_ids_of_their_target(tmp_path: Path, keep: str):
    columns = draw_columns()
    config = config_of(write(tmp_path / "rows.parquet", columns), keep)
    directory = prepare_in_cache(config, tmp_path / "cache")
    data, encoders = open_packed(directory), Encoders.load(directory / ENCODERS)
    assert data.schema.sequences == (SequenceShape(1, 4), SequenceShape(1, 2))
    assert [feature.name for feature in data.schema.tables] == ["user", "film"]
    assert encoders.vocabularies[2] is encoders.vocabularies[1]
    films = encoders.vocabularies[1]
    of_value = {value: int(films.encode(pl.Series([value]))[0]) for value in [*range(20), 99]}
    assert of_value[99] == 0, "a film that is no target is a rare one"
    found: list[list[int]] = []
    for source in (data.train, data.evaluation):
        rows = source.read(np.arange(source.num_rows))
        ids = np.split(rows.ids.values, np.cumsum(rows.ids.lengths.sum(axis=1)))[2]
        found += [ids_of.tolist() for ids_of in np.split(ids, np.cumsum(rows.ids.lengths[2]))[:-1]]
    missing = films.missing_ids[0]
    expected = [[of_value.get(value, missing) for value in shorten(values, 4, keep)] for values in columns["seen"]]
    assert sorted(found) == sorted(expected)
    num_long = sum(len(values or []) > 4 for values in columns["seen"])
    assert read_meta(directory).odd_values["shortened"]["seen"] == num_long


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_every_format_gives_the_same_sequences(tmp_path: Path, suffix: str):
    columns = draw_columns()
    if suffix == ".csv":
        # There a blank list is a missing one.
        columns |= {name: [values or None for values in columns[name]] for name in ("seen", "left")}
    of_formats = [
        open_packed(prepare_in_cache(config_of(write(tmp_path / f"rows{kind}", columns)), tmp_path / kind))
        for kind in (".parquet", suffix)
    ]
    for name in ("train", "evaluation"):
        one, other = (getattr(data, name).read(np.arange(getattr(data, name).num_rows)).ids for data in of_formats)
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.lengths, other.lengths)


@pytest.fixture(scope="module", params=["din", "transformer", "hstu"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Path, Path, DataConfig]:
    """Directories of a model and of the rows that it was prepared from."""
    directory = tmp_path_factory.mktemp("sequences")
    config = config_of(write(directory / "rows.parquet", draw_columns()))
    prepared = prepare_in_cache(config, directory / "cache")
    made_model(directory / "model", config, prepared, model={**SIZES, "attention": {"kind": request.param}})
    return directory / "model", prepared, config


def test_rows_in_python_files_and_prepared_rows_have_the_same_scores(made: tuple[Path, Path, DataConfig]):
    model, columns = load_saved_model(made[0]), draw_columns()
    inputs = {name: values for name, values in columns.items() if name != "label"}
    scores = model.predict(inputs)
    in_file = np.concatenate(list(model.predict_files(made[2].train)))
    np.testing.assert_allclose(scores, in_file, atol=1e-6)
    one = {name: values[3] for name, values in inputs.items()}
    np.testing.assert_allclose(model.predict(one), scores[3:4], atol=1e-6)
    data = open_packed(made[1]).train
    rows = data.read(np.arange(data.num_rows))
    with torch.no_grad():
        logits = model.module(*(torch.from_numpy(a) for a in (rows.dense, rows.ids.values, rows.ids.lengths)))
    assert np.isin(torch.sigmoid(logits).numpy().round(5), scores.round(5)).mean() > 0.99


def test_a_score_depends_on_the_newest_values_alone(made: tuple[Path, Path, DataConfig]):
    model = load_saved_model(made[0])
    row: dict[str, Any] = {"age": 0.5, "user": "u1", "film": 3, "seen": [1, 2, 3, 4], "left": [5]}
    (expected,) = model.predict(row)
    assert model.predict({**row, "seen": [9, 9, 1, 2, 3, 4]})[0] == expected
    assert model.predict({**row, "seen": [1, 2, 3, 6]})[0] != expected


def test_the_card_says_how_a_column_is_read(made: tuple[Path, Path, DataConfig]):
    card = (made[0] / "MODEL_CARD.md").read_text()
    assert "list of integers, of which the last 4 are read" in card
    assert "compared with `film`" in card


def test_a_model_with_sequences_is_exported_as_a_program(made: tuple[Path, Path, DataConfig], tmp_path: Path):
    from dlrm.exported_model.dense_program import TOLERANCE, export_dense_part

    model: SavedModel = load_saved_model(made[0])
    pooled = torch.randn(6, 2 + 4 + 2, 4)
    pooled[0, 2:] = 0.0
    assert export_dense_part(model.module.dense, [], torch.randn(6, 1), pooled, tmp_path / "dense.pt2") <= TOLERANCE


def test_a_base_with_longer_sequences_cannot_be_extended(made: tuple[Path, Path, DataConfig]):
    base, document = open_base(made[0]), made[2].model_dump()
    check_base(made[2], base)
    document["schema"]["categorical"][2]["sequence"]["max_length"] = 3
    fault = "seen is integer, sequences of up to 3 of film here and integer, sequences of up to 4 of film in the base"
    with pytest.raises(DataError, match=fault):
        check_base(DataConfig.model_validate(document), base)
