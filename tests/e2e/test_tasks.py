"""A click log with two further labels, one of them often missing: trained, measured, scored and refused."""

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

NUM_ROWS = 20_000
TASKS: list[dict[str, Any]] = [
    {"name": "click"},
    {"name": "buy", "label": "bought", "given": "click"},
    {"name": "dwell", "label": "seconds", "kind": "regression"},
]


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))


def draw_rows() -> pl.DataFrame:
    """Purchases are known of clicks alone; reading times of two rows in three."""
    random = np.random.default_rng(0)
    age, site = random.normal(size=NUM_ROWS), random.integers(0, 50, NUM_ROWS)
    click = random.random(NUM_ROWS) < 1 / (1 + np.exp(1 - age - np.sin(site)))
    bought = random.random(NUM_ROWS) < 1 / (1 + np.exp(-age / 2 - np.cos(site)))
    seconds = 2 + age / 2 + 0.2 * random.normal(size=NUM_ROWS)
    return pl.DataFrame(
        {
            "label": click.astype(int),
            "bought": pl.Series(bought.astype(int)).set(pl.Series(~click), None),
            "seconds": pl.Series(seconds).set(pl.Series(random.random(NUM_ROWS) < 1 / 3), None),
            "age": age,
            "site": site,
        }
    )


def write_job(path: Path, file: Path, **sections: Any) -> Path:
    further = [{"name": "bought"}, {"name": "seconds", "kind": "regression"}]
    columns = {"dense": [{"name": "age"}], "categorical": [{"name": "site", "type": "integer"}]}
    document: dict[str, Any] = {
        "data": {"train": [str(file)], "format": file.suffix[1:], "schema": {"further_labels": further, **columns}},
        "model": {
            "architecture": "dlrm",
            "embedding_dim": 4,
            "bottom_mlp": [8, 4],
            "top_mlp": [16, 8, 1],
            "tasks": TASKS,
            "task_sharing": {"method": "mmoe", "num_experts": 3},
        },
        "batch": {"global_size": 256},
        "dense_optimizer": {"learning_rate": 0.02},
        "table_optimizer": {"learning_rate": 0.1},
        "run": {"epochs": 4, "yardsticks": "logistic"},
        "resources": {"workers_per_node": 2},
    }
    job = path / "job.json"
    job.write_text(json.dumps({**document, **sections}))
    return job


def run(*arguments: object) -> str:
    return subprocess.run([*command(*map(str, arguments))], capture_output=True, text=True, check=True).stdout


def test_a_model_of_three_tasks_is_trained_measured_and_scores_rows(tmp_path: Path):
    rows = draw_rows()
    rows.write_parquet(tmp_path / "rows.parquet")
    run("train", write_job(tmp_path, tmp_path / "rows.parquet"), "--run-directory", tmp_path / "run")
    directory = tmp_path / "run/model"
    model = dlrm.load_model(directory)
    assert model.tasks == ["click", "buy", "dwell"]

    metrics = model.metrics
    assert metrics["auc"] is not None
    assert metrics["auc"] > 0.7
    assert (metrics["buy.auc"] or 0) > 0.7
    # Without a feature it would be half of the spread of the ages.
    assert (metrics["dwell.rmse"] or 1) < 0.35
    assert metrics["dwell.num_rows"] < metrics["num_rows"] == metrics["buy.num_rows"]
    measured = json.loads(run("evaluate", directory, "--json"))
    for name in ("auc", "buy.auc", "buy.log_loss", "dwell.rmse"):
        assert measured[name] == pytest.approx(metrics[name], rel=1e-5)

    scores = model.predict_table(rows)
    assert scores.shape == (NUM_ROWS, 3)
    assert (scores[:, 1] < scores[:, 0]).all()
    bought = rows["bought"].fill_null(0).to_numpy()
    assert scores[:, 1].mean() == pytest.approx(bought.mean(), rel=0.1)
    assert np.corrcoef(scores[:, 2], rows["age"].to_numpy())[0, 1] > 0.95
    run("predict", directory, tmp_path / "rows.parquet", "--output", tmp_path / "scores.parquet")
    predicted = pl.read_parquet(tmp_path / "scores.parquet")
    assert predicted.columns == ["click", "buy", "dwell"]
    np.testing.assert_allclose(predicted.to_numpy(), scores, rtol=1e-6)
    assert "`buy`" in (directory / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "arrow"])
def test_labels_in_files_of_every_kind_are_prepared_alike(tmp_path: Path, suffix: str):
    rows = draw_rows().head(2000)
    write = {"csv": rows.write_csv, "jsonl": rows.write_ndjson, "arrow": rows.write_ipc}[suffix]
    write(tmp_path / f"rows.{suffix}")
    rows.write_parquet(tmp_path / "rows.parquet")
    found: list[np.ndarray] = []
    for file in ("rows.parquet", f"rows.{suffix}"):
        output = tmp_path / f"packed-{file}"
        run("prepare", write_job(tmp_path, tmp_path / file), "--output", output)
        found.append(np.fromfile(output / "train/further_labels.bin", dtype="<f4"))
    assert len(found[0]) > 3000
    np.testing.assert_array_equal(found[1], found[0])
    job = write_job(tmp_path, output, data={"format": "packed", "train": [str(output)]})
    run("train", job, "--run-directory", tmp_path / "run")
