"""Scores of rows that Python holds."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import dlrm
from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.model import SavedModel
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.data.prepare.table_strategies import MadeTable, made_tables
from tests.dlrm.exported_model.conftest import Made
from tests.dlrm.exported_model.model_factory import SIZES, made_model

ROW: dict[str, Any] = {"age": 31.5, "clicks": 4, "site": "s3", "user": 7, "tags": ["t1", "t2"], "items": [-1]}
MISSING: dict[str, Any] = dict.fromkeys(ROW)


@pytest.fixture(scope="module")
def model(made: Made) -> SavedModel:
    return load_saved_model(made.path)


def columns_of(*rows: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in ROW}


def test_one_row_of_values_scores_as_it_does_among_others(model: SavedModel):
    (alone,) = model.predict(ROW)
    assert 0 < alone < 1
    np.testing.assert_allclose(model.predict(columns_of(MISSING, ROW, ROW))[1:], [alone, alone], atol=1e-7)


def test_a_score_is_what_the_encoders_and_the_plain_model_say(model: SavedModel, made: Made):
    vocabulary = model.encoders.vocabularies
    ids = [
        int(vocabulary[place].encode(pl.Series([value]))[0])
        for place, value in [(0, "s3"), (1, 7), (2, "t1"), (2, "t2"), (3, -1)]
    ]
    age, clicks = model.encoders.dense
    dense = age.encode(np.array([31.5])) + clicks.encode(np.array([4.0]))
    delivered = torch.from_numpy(np.stack(dense, axis=1))
    lengths = torch.tensor([[1], [1], [2], [1]], dtype=torch.int32)
    with torch.no_grad():
        expected = torch.sigmoid(made.plain(delivered, torch.tensor(ids), lengths))
    np.testing.assert_allclose(model.predict(ROW), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("missing", [None, math.nan, np.nan])
def test_none_and_nan_are_missing_values(model: SavedModel, missing: float | None):
    rows = columns_of(ROW, MISSING)
    for values in rows.values():
        values[1] = missing
    np.testing.assert_array_equal(model.predict(rows), model.predict(columns_of(ROW, MISSING)))


def test_unseen_values_score_as_each_other(model: SavedModel):
    scores = model.predict(columns_of({**ROW, "site": "never"}, {**ROW, "site": "ever"}, {**ROW, "user": 10**15}))
    assert scores[0] == scores[1]
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "others",
    [
        {"age": np.array([31.5, 31.5], dtype=np.float32), "user": np.array([7, 7], dtype=np.int32)},
        {"user": [7.0, 7.0], "items": [[-1.0], np.array([-1])]},
        {"user": [Decimal(7), Decimal("7.0")], "age": [Decimal("31.5")] * 2, "items": [[2**64 - 1]] * 2},
        {"user": [np.int8(7), np.int64(7)], "age": ["31.5", " 31.50 "], "clicks": [np.float32(4)] * 2},
        {"user": ["7", "7.0"], "items": [["-1"], ["-1.0"]], "clicks": pa.array(["4", "4"]).dictionary_encode()},
        {"site": np.array(["s3", "s3"]), "tags": [("t1", "t2"), np.array(["t1", "t2"])]},
        {"site": [b"s3", b"s3"], "tags": np.array([["t1", "t2"], ["t1", "t2"]])},
        {"site": pl.Series(["s3", "s3"]), "age": pa.array([31.5, 31.5])},
        {"label": [0, 1], "worth": ["not", "looked at"]},
    ],
)
def test_other_kinds_of_lists_of_the_same_values_score_the_same(model: SavedModel, others: dict[str, Any]):
    rows = columns_of(ROW, ROW)
    np.testing.assert_allclose(model.predict({**rows, **others}), model.predict(rows), atol=1e-7)


def test_no_rows_have_no_scores(model: SavedModel):
    scores = model.predict({name: [] for name in ROW})
    assert (scores.shape, scores.dtype) == ((0,), np.float32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sites": ["a"]}, "sites: is not a column of the model; did you mean 'site'"),
        ({"age": ["old"]}, "age, row 0: 'old' is not a number"),
        ({"age": [1, "old"]}, "age: is not a list of values of one type"),
        ({"age": [[1]]}, "age: the column's type is list"),
        ({"age": 1.0}, "age: is one value, but other columns are lists of values"),
        ({"age": [1, 2]}, "clicks: has the length 1, but age has the length 2"),
        ({"age": {0: 1.0}}, "age: is a dict, not a list"),
        ({"site": [3.0]}, "site: the column's type is double (valid: text, bytes, integers or decimals of scale 0"),
        ({"site": ["\ud800"]}, "site: "),
        ({"user": ["seven"]}, "user, row 0: 'seven' is not an integer"),
        ({"user": [7.5]}, "user, row 0: 7.5 is not an integer (valid: an integer, or null where missing"),
        ({"user": [2**70]}, "user, row 0: 1180591620717411303424 is beyond 64 bits"),
        ({"tags": ["t1"]}, "tags: the column's type is string (valid: lists of text"),
        ({"tags": [[True]]}, "tags: the column's type is list"),
        ({"items": [[1.5]]}, "items, row 0: 1.5 is not an integer"),
    ],
)
def test_a_fault_names_its_column(model: SavedModel, changed: dict[str, Any], message: str):
    with pytest.raises(DataError) as caught:
        model.predict({**columns_of(ROW), **changed})
    assert message in str(caught.value)


WORDS = ["?", "NA", "", "s3", "never seen", None]
"""Texts of a column; the first three are blank or listed as missing in the schema of `made_with_words`."""


def made_with_words(directory: Path, *, is_prepared: bool = False, tags: bool = False) -> SavedModel:
    """A model that was trained on CSV in which some words stand for missing values.

    is_prepared: whether it was trained on rows that were prepared from the CSV before. tags: whether it has a
    multi-hot column.
    """
    of_tags = ["t1|t2", "t1|", "NA", "", "t2|NA"]
    rows = [
        f"{row % 2},{['?', 'NA', '', 's3', 's4'][row % 5]},{row % 9}{f',{of_tags[row % 7 % 5]}' if tags else ''}"
        for row in range(200)
    ]
    (directory / "rows.csv").write_text("\n".join([f"label,site,price{',tags' if tags else ''}", *rows]) + "\n")
    categorical = [{"name": "site"}, *([{"name": "tags", "multi_hot": True}] if tags else [])]
    schema = {"dense": [{"name": "price"}], "categorical": categorical, "missing": ["?", "NA"]}
    data = DataConfig.model_validate({"train": [str(directory / "rows.csv")], "format": "csv", "schema": schema})
    packed = prepare_in_cache(data, directory)
    if is_prepared:
        data = DataConfig.model_validate({"train": [str(packed)], "format": "packed"})
    made_model(directory / "model", data, None if is_prepared else packed)
    return load_saved_model(directory / "model")


def test_lists_score_in_python_as_the_same_cells_do_in_csv(tmp_path: Path):
    model = made_with_words(tmp_path, tags=True)
    cells = ["t1|t2", "t1|", "|", "", "NA", "t2|NA", "NA|", "t9"]
    (tmp_path / "new.csv").write_text("\n".join(["site,price,tags", *(f"s3,1.0,{cell}" for cell in cells)]) + "\n")
    expected = np.concatenate([*model.predict_files(str(tmp_path / "new.csv"))])
    assert len({*expected}) >= 6
    columns = {"site": ["s3"] * len(cells), "price": [1.0] * len(cells)}
    lists = [cell.split("|") for cell in cells]
    np.testing.assert_array_equal(model.predict({**columns, "tags": lists}), expected)
    np.testing.assert_array_equal(model.predict_table(pa.table({**columns, "tags": lists})), expected)
    # A blank cell, since CSV has no empty lists.
    np.testing.assert_array_equal(model.predict({**columns, "tags": [[]] * len(cells)}), [expected[3]] * len(cells))


@pytest.mark.parametrize("is_prepared", [False, True], ids=["trained on CSV", "on rows prepared from it"])
def test_words_for_missing_values_score_in_python_as_they_do_in_csv(tmp_path: Path, is_prepared: bool):
    model = made_with_words(tmp_path, is_prepared=is_prepared)
    prices = [1.0] * len(WORDS)
    lines = [f"{'' if word is None else word},1.0" for word in WORDS]
    (tmp_path / "new.csv").write_text("\n".join(["site,price", *lines]) + "\n")
    expected = np.concatenate([*model.predict_files(str(tmp_path / "new.csv"))])
    assert len(set(expected[[0, 1, 2, 5]])) == 1
    assert len({expected[0], expected[3], expected[4]}) == 3
    np.testing.assert_array_equal(model.predict({"site": WORDS, "price": prices}), expected)
    np.testing.assert_array_equal([model.predict({"site": word, "price": 1.0})[0] for word in WORDS], expected)
    table = pa.table({"site": pa.array(WORDS).dictionary_encode(), "price": prices})
    np.testing.assert_array_equal(model.predict_table(table), expected)
    parquet.write_table(table, tmp_path / "new.parquet")
    np.testing.assert_array_equal(np.concatenate([*model.predict_files(str(tmp_path / "new.parquet"))]), expected)


def test_a_missing_column_is_named(model: SavedModel):
    rows = columns_of(ROW)
    del rows["user"]
    with pytest.raises(DataError, match="user: the column is missing"):
        model.predict(rows)


def test_the_row_at_fault_is_named(model: SavedModel):
    with pytest.raises(DataError, match=r"^user, row 1: 7.5 is not an integer"):
        model.predict({**columns_of(ROW, ROW, ROW), "user": [1.0, 7.5, 8.5]})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"age": [math.inf, 1e300]}, "age: 2 values are infinite, beyond float32 or a limit of 64-bit integers"),
        ({"user": [7.0, 2.0**60]}, "user: 1 id is a float so large that each stands for several integers"),
        ({"user": np.array([2.0**25, 7], dtype=np.float32)}, "user: 1 id is a float"),
        ({"items": [[3.0, 2.0**60], []]}, "items: 1 id is a float"),
    ],
)
def test_values_that_are_read_otherwise_than_they_stand_are_warned_of(
    model: SavedModel, changed: dict[str, Any], message: str
):
    with pytest.warns(UserWarning, match=message):
        assert np.isfinite(model.predict({**columns_of(ROW, ROW), **changed})).all()


def test_rows_that_are_not_a_dictionary_are_refused(model: SavedModel):
    for rows in ([ROW], pl.DataFrame(columns_of(ROW))):
        with pytest.raises(DataError, match=r"not a dict \(valid: a dict of columns.*predict_table"):
            model.predict(rows)  # type: ignore[arg-type]


def test_rows_beyond_the_first_slice_keep_their_number(model: SavedModel):
    users = [1.0] * 70_000 + [0.5]
    with pytest.raises(DataError, match=r"^user, row 70000: 0.5 is not an integer"):
        model.predict({**{name: [value] * len(users) for name, value in ROW.items()}, "user": users})


def test_tables_of_any_library_that_speaks_arrow_are_scored(model: SavedModel):
    rows = columns_of(ROW, MISSING, ROW)
    expected = model.predict(rows)
    frame = pl.DataFrame({**rows, "other": [1, 2, 3]})
    for table in (frame, frame.to_arrow(), pa.table(rows)):
        np.testing.assert_array_equal(model.predict_table(table), expected)
    with pytest.raises(DataError, match=r"^tags: there is no such column"):
        model.predict_table(frame.drop("tags"))


def test_a_model_of_a_synthetic_log_says_that_it_knows_no_raw_values(tmp_path: Path):
    data = DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 10}})
    made_model(tmp_path / "model", data, None)
    with pytest.raises(DataError, match="trained on a synthetic log and cannot encode raw values"):
        dlrm.load_model(tmp_path / "model").predict({"C1": [1]})


@settings(max_examples=5)
@given(made_tables(max_rows=30), st.sampled_from(["dlrm", "dcn_v2"]), st.sampled_from(["sum", "mean"]), st.data())
def test_rows_score_the_same_from_a_dictionary_a_file_and_prepared(
    tmp_path_factory: pytest.TempPathFactory, table: MadeTable, architecture: str, pooling: str, data: st.DataObject
):
    place = tmp_path_factory.mktemp("any")
    table.write(place / "rows.parquet", data.draw(st.integers(1, 30)))
    config = DataConfig.model_validate(
        {"train": [str(place / "rows.parquet")], "format": "parquet", "schema": table.schema, "split": "tail"}
        | {"eval_fraction": 0.5, "vocabulary": {"min_count": 1}}
    )
    packed = prepare_in_cache(config, place)
    made_model(place / "model", config, packed, model={**SIZES, "architecture": architecture, "pooling": pooling})
    model = dlrm.load_model(place / "model")
    of_rows = model.predict(table.columns)
    of_file = np.concatenate(list(model.predict_files(str(place / "rows.parquet"), num_threads=2)))
    np.testing.assert_allclose(of_file, of_rows, atol=1e-6)
    dataset = open_packed(packed)
    parts = [source.read(np.arange(source.num_rows)) for source in (dataset.train, dataset.evaluation)]
    with torch.no_grad():
        logits = [
            model.module(*map(torch.from_numpy, (part.dense, part.ids.values, part.ids.lengths))) for part in parts
        ]
    np.testing.assert_allclose(torch.sigmoid(torch.cat(logits)).numpy(), of_rows, atol=1e-6)
