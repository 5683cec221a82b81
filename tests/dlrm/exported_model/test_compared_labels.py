"""A model whose label is a comparison of ratings reads the labels of later files as those that it was trained on."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from dlrm.config import DataConfig
from dlrm.exported_model.load import load_saved_model
from dlrm.programs.evaluate import measure
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import made_model

N = 400


def test_later_ratings_are_compared_in_every_format_and_type(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ratings = draw.integers(1, 11, N) / 2
    rows = pl.DataFrame({"rating": ratings, "user": draw.integers(0, 20, N)})
    rows.write_csv(tmp_path / "train.csv")
    schema = {"label": "rating", "positive": ">= 3.5", "categorical": [{"name": "user", "type": "integer"}]}
    data = DataConfig.model_validate({"train": [str(tmp_path / "train.csv")], "format": "csv", "schema": schema})
    packed = prepare_in_cache(data, tmp_path)
    made_model(tmp_path / "model", data, packed)
    model = load_saved_model(tmp_path / "model")
    auc = roc_auc_score(ratings >= 3.5, model.predict({"user": rows["user"].to_numpy()}))
    for kind in (pl.Float64, pl.Float32, pl.String, pl.Decimal(4, 1)):
        path = tmp_path / f"{kind}.parquet"
        rows.cast({"rating": kind}).write_parquet(path)
        assert measure(model, [str(path)])["auc"] == pytest.approx(auc, abs=1e-6)
    assert measure(model, [str(tmp_path / "train.csv")])["auc"] == pytest.approx(auc, abs=1e-6)
    assert "label is `>= 3.5`" in (tmp_path / "model" / "MODEL_CARD.md").read_text()
