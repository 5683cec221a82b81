"""A log of clicks from which negatives were left out: the model's probabilities are those of the whole traffic."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # several commands, one after another

SHARE = 0.1
NUM_ROWS = 60_000
"""Rows of the traffic to train on, and as many others to score."""


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))


def draw_traffic(seed: int) -> pl.DataFrame:
    """Rows of 300 users and 20 items, about 4 % of which are clicks."""
    random = np.random.default_rng(seed)
    user, item, hour = (random.integers(0, size, NUM_ROWS) for size in (300, 20, 24))
    logit = -3.9 + 0.8 * np.sin(user) + 0.9 * np.cos(item) + 0.3 * np.sin(hour / 4)
    label = random.random(NUM_ROWS) < 1 / (1 + np.exp(-logit))
    return pl.DataFrame({"label": label.astype(int), "user": user, "item": item, "hour": hour})


def leave_out(traffic: pl.DataFrame, seed: int) -> pl.DataFrame:
    kept = np.random.default_rng(seed).random(len(traffic)) < SHARE
    return traffic.filter((pl.col("label") == 1) | pl.Series(kept))


def write_job(path: Path, **run: Any) -> Path:
    columns = [{"name": name, "type": "integer"} for name in ("user", "item")]
    document = {
        "data": {
            "train": [str(path / "train.csv")],
            "eval": [str(path / "eval.csv")],
            "format": "csv",
            "schema": {"dense": [{"name": "hour"}], "categorical": columns},
            "negative_sampling": SHARE,
        },
        "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
        "batch": {"global_size": 256},
        "run": {"epochs": 4, "yardsticks": "none", "group_by": "user", "recall_at": [3], **run},
        "resources": {"workers_per_node": 2},
    }
    job = path / f"job-{len(run)}.json"
    job.write_text(json.dumps(document))
    return job


def run(*arguments: object) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("settings", [{}, {"recalibrate": "platt"}, {"recalibrate": "isotonic", "blend": "logistic"}])
def test_the_mean_prediction_over_whole_traffic_is_its_click_rate(tmp_path: Path, settings: dict[str, Any]) -> None:
    trained_on, scored = draw_traffic(1), draw_traffic(2)
    leave_out(trained_on, 3).write_csv(tmp_path / "train.csv")
    leave_out(scored, 4).write_csv(tmp_path / "eval.csv")
    scored.write_csv(tmp_path / "traffic.csv")
    job = write_job(tmp_path, **settings)
    trained = json.loads(run("train", job, "--run-directory", tmp_path / "run", "--json").splitlines()[-1])
    model = tmp_path / "run" / "model"
    run("predict", model, tmp_path / "traffic.csv", "--output", tmp_path / "scores.parquet")
    scores = pl.read_parquet(tmp_path / "scores.parquet")["probability"].to_numpy().astype(np.float64)
    rate, num_clicks = scored["label"].mean(), scored["label"].sum()
    # The clicks of both logs are drawn, and so are the negatives that are left. A recalibrated model has the mean
    # rate of its validation rows, a tenth.
    fitted = 0.1 if "recalibrate" in settings else 1.0
    variance = 1 / num_clicks + (1 / trained_on["label"].sum() + 1 / (SHARE * len(trained_on))) / fitted
    error = rate * np.sqrt(variance)
    assert abs(scores.mean() - rate) <= 3 * error
    # Figures of the sampled rows are estimates of those of the whole traffic.
    whole = json.loads(run("evaluate", model, tmp_path / "traffic.csv", "--negative-sampling", 1, "--json"))
    sampled = json.loads(run("evaluate", model, "--json"))
    labels = scored["label"].to_numpy()
    log_loss = -np.log(np.where(labels == 1, scores, 1 - scores)).mean()
    assert whole["log_loss"] == pytest.approx(log_loss, rel=1e-5)
    for name in ("log_loss", "calibration", "grouped_auc"):
        assert sampled[name] == pytest.approx(whole[name], rel=0.05)
        assert sampled[name] == pytest.approx(trained[name], rel=1e-5)
    assert trained["recall_at_3"] is not None
