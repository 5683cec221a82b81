"""A synthetic log whose labels depend on the history: planned, trained on two ranks, measured and scored."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import dlrm
from tests.cli.conftest import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # several commands, one after another

NUM_ROWS, NUM_FILMS, NUM_KINDS = 20_000, 60, 6


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))


def draw_rows() -> pl.DataFrame:
    """A user likes one kind of film, has seen films of it, and others; the label is whether the film is of that kind.

    Neither the film nor the history alone says anything of the label.
    """
    random = np.random.default_rng(0)
    kind, film = random.integers(0, NUM_KINDS, NUM_ROWS), random.integers(0, NUM_FILMS, NUM_ROWS)
    film = np.where(random.random(NUM_ROWS) < 0.4, film - film % NUM_KINDS + kind, film)
    seen: list[list[int]] = []
    for of_user in kind:
        drawn = random.integers(0, NUM_FILMS, random.integers(0, 20))
        seen.append(np.where(random.random(len(drawn)) < 0.7, drawn - drawn % NUM_KINDS + of_user, drawn).tolist())
    label = random.random(NUM_ROWS) < np.where(film % NUM_KINDS == kind, 0.9, 0.1)
    return pl.DataFrame({"label": label.astype(int), "age": random.normal(size=NUM_ROWS), "film": film, "seen": seen})


def write_job(path: Path, file: Path, kind: str) -> Path:
    columns: list[dict[str, Any]] = [
        {"name": "film", "type": "integer"},
        {
            "name": "seen",
            "type": "integer",
            "multi_hot": True,
            "sequence": {"target": "film", "max_length": 10},
        },
    ]
    document = {
        "data": {
            "train": [str(file)],
            "format": "parquet",
            "schema": {"dense": [{"name": "age"}], "categorical": columns},
        },
        "model": {
            "architecture": "dlrm",
            "embedding_dim": 8,
            "bottom_mlp": [8, 8],
            "top_mlp": [32, 1],
            "attention": {"kind": kind},
        },
        "batch": {"global_size": 256},
        "dense_optimizer": {"name": "adam", "learning_rate": 0.01},
        "table_optimizer": {"learning_rate": 0.1},
        "run": {"epochs": 4, "yardsticks": "logistic"},
        "resources": {"workers_per_node": 2},
    }
    job = path / f"{kind}.json"
    job.write_text(json.dumps(document))
    return job


def run(*arguments: object) -> str:
    return subprocess.run([*command(*map(str, arguments))], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", ["din", "transformer", "hstu"])
def test_a_label_that_depends_on_the_history_is_learned_and_scored(tmp_path: Path, kind: str):
    rows = draw_rows()
    rows.write_parquet(tmp_path / "rows.parquet")
    job = write_job(tmp_path, tmp_path / "rows.parquet", kind)
    tables = json.loads(run("plan", job, "--json"))["plan"]["tables"]
    assert [(table["name"], table["ids_per_sample"]) for table in tables] == [("film", 11.0)]
    run("train", job, "--run-directory", tmp_path / "run")
    model = dlrm.load_model(tmp_path / "run/model")
    assert (model.metrics["auc"] or 0) > 0.8
    # Logistic regression knows the film and the history, and not that one is in the other.
    assert (model.metrics["logistic_regression_auc"] or 1) < 0.6
    measured = json.loads(run("evaluate", tmp_path / "run/model", "--json"))
    assert measured["auc"] == pytest.approx(model.metrics["auc"], rel=1e-5)
    scores = model.predict_table(rows)
    run("predict", tmp_path / "run/model", tmp_path / "rows.parquet", "--output", tmp_path / "scores.parquet")
    np.testing.assert_allclose(pl.read_parquet(tmp_path / "scores.parquet").to_numpy()[:, 0], scores, rtol=1e-6)
    by_name = {name: rows[name].to_list()[:100] for name in ("age", "film", "seen")}
    np.testing.assert_allclose(model.predict(by_name), scores[:100], rtol=1e-5)
