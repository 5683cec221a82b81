"""Models of columns that are used several times score raw rows by the names of the columns."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.model import SavedModel
from dlrm.exported_model.score import make_source_pieces, score_pieces
from dlrm.exported_model.sources import open_compatible
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import made_model

NUM_ROWS = 200
SCHEMA: dict[str, Any] = {
    "label": "bought",
    "positive": "yes",
    "dense": [{"name": "age"}],
    "categorical": [
        {"name": "age", "bucketize": 5},
        {"name": "age", "type": "integer"},
        {"name": "seen", "time_part": "hour"},
        {"name": "seen", "time_part": "month"},
    ],
}


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "bought": random.choice(["yes", "no"], NUM_ROWS),
            "age": [None if row % 8 == 0 else int(age) for row, age in enumerate(random.integers(18, 90, NUM_ROWS))],
            "seen": random.integers(1_600_000_000, 1_700_000_000, NUM_ROWS).astype("M8[s]").astype("M8[us]"),
        }
    )


@pytest.fixture(scope="module")
def directory(rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in `model`, the rows that it was trained on in `rows.csv` and in `packed`."""
    directory = tmp_path_factory.mktemp("uses")
    rows.with_columns(pl.col("seen").dt.to_string("iso:strict")).write_csv(directory / "rows.csv")
    document = {"train": [str(directory / "rows.csv")], "format": "csv", "schema": SCHEMA, "split": "tail"}
    data = DataConfig.model_validate(document)
    packed = prepare_in_cache(data, directory)
    (directory / "packed").symlink_to(packed)
    made_model(directory / "model", data, packed)
    return directory


@pytest.fixture(scope="module")
def model(directory: Path) -> SavedModel:
    return load_saved_model(directory / "model")


@pytest.fixture(scope="module")
def scores(directory: Path, model: SavedModel) -> np.ndarray:
    """Scores of the packed rows, training rows before the others: with a tail, in the order of the file."""
    dataset = open_compatible(directory / "packed", model.encoders)
    pieces = [piece for source in (dataset.train, dataset.evaluation) for piece in make_source_pieces(source)]
    return np.concatenate([piece.predictions for piece in score_pieces(model.module, pieces, 1)])


def test_each_column_is_given_once(model: SavedModel) -> None:
    assert model.columns == ["age", "seen"]


def test_every_form_of_the_rows_scores_like_the_packed_ones(
    rows: pl.DataFrame, directory: Path, model: SavedModel, scores: np.ndarray
) -> None:
    assert len(np.unique(scores)) > NUM_ROWS / 2
    lists = {name: rows[name].to_list() for name in ("age", "seen")}
    seconds = rows["seen"].dt.epoch("s").to_list()
    for found in (
        np.concatenate(list(model.predict_files(str(directory / "rows.csv")))),
        model.predict_table(rows),
        model.predict(lists),
        model.predict({**lists, "seen": [str(moment) for moment in lists["seen"]]}),
        model.predict({**lists, "seen": seconds}),
        model.predict({"age": rows["age"].to_numpy(), "seen": rows["seen"].to_numpy()}),
    ):
        np.testing.assert_allclose(found, scores, atol=1e-6)
    one = model.predict({"age": lists["age"][1], "seen": lists["seen"][1]})
    np.testing.assert_allclose(one, scores[1:2], atol=1e-6)


def test_values_that_the_training_rows_did_not_have_are_accepted(model: SavedModel) -> None:
    found = model.predict({"age": [-7, 1000, None], "seen": [datetime(1900, 1, 1), None, datetime(2099, 1, 1)]})
    assert np.isfinite(found).all()


def test_what_is_no_time_is_named_with_its_row(model: SavedModel) -> None:
    with pytest.raises(DataError, match=r"seen, row 1: 'soon' is not a time \(valid: timestamps"):
        model.predict({"age": [1, 2], "seen": ["2024-01-01", "soon"]})


def test_the_card_says_how_each_column_is_used_and_what_is_predicted(directory: Path) -> None:
    card = (directory / "model" / "MODEL_CARD.md").read_text()
    assert "the probability that a row's label is `yes`, from" in card
    for line in (
        "| `age` | number | standardise |",
        "| `age` | number | ranges, 6 table rows |",
        "| `seen` | time | hour in UTC, 25 table rows |",
        "| `seen` | time | month in UTC, 13 table rows |",
    ):
        assert line in card


def test_tables_are_named_by_their_features(directory: Path, model: SavedModel) -> None:
    names = [feature.name for feature in open_packed(directory / "packed").schema.features]
    assert names == ["age:buckets", "age", "seen:hour", "seen:month"]
    assert list(model.config.table_rows) == names
