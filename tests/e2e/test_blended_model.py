"""A blended model from a file of raw rows: every command that takes it gives the numbers of the run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import command
from tests.e2e.raw_rows import data_of, write_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # several commands, one after another

FILES = {"train.csv": 6000, "eval.csv": 2000}
"""Numbers of rows."""


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job on 6,000 rows with lists and weights, and 2,000 others that measure it."""
    files = [write_rows(tmp_path / name, num_rows, seed) for seed, (name, num_rows) in enumerate(FILES.items())]
    document = {
        "name": "rows",
        "data": {**data_of(files[0]), "eval": [str(files[1])]},
        "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
        "batch": {"global_size": 512},
        "run": {"epochs": 1, "validation_fraction": 0.1, "blend": "logistic", "yardsticks": "none"},
        "resources": {"workers_per_node": 2},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    return path


def run(*arguments: object) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_result(*arguments: object) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json").splitlines()[-1])


def compute_log_loss(scores: Path, rows: Path) -> float:
    """The weighted mean of the log-losses of the probabilities in a file, in float64."""
    table = pl.read_csv(rows)
    labels, weights = table["label"].to_numpy(), table["worth"].to_numpy()
    scored = pl.read_parquet(scores)["probability"].to_numpy().astype(np.float64)
    return float(np.average(-np.log(np.where(labels == 1, scored, 1 - scored)), weights=weights))


def test_predict_evaluate_and_export_give_the_numbers_of_a_blended_run(job: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    trained = read_result("train", job, "--run-directory", directory)
    model, evaluation = directory / "model", tmp_path / "eval.csv"
    share = json.loads((model / "config.json").read_text())["first_order_share"]
    assert trained["blend_share"] == share > 0

    run("predict", model, evaluation, "--output", tmp_path / "scores.parquet")
    assert compute_log_loss(tmp_path / "scores.parquet", evaluation) == pytest.approx(trained["log_loss"], rel=1e-5)
    evaluated = read_result("evaluate", model)
    name = f"step-{trained['model_step']:.0f}"
    exported = read_result("export", directory, "--checkpoint", name, "--output", tmp_path / "exported")
    for figure in ("auc", "log_loss", "calibration"):
        assert evaluated[figure] == pytest.approx(trained[figure], rel=1e-6)
        assert exported[figure] == pytest.approx(trained[figure], rel=1e-6)
    weights = [(path / "model.safetensors").read_bytes() for path in (model, tmp_path / "exported")]
    assert weights[0] == weights[1]
