"""The model of a job on the service's disk, downloaded, scores rows in a directory of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cli.demo.service_process import run_service
from tests.e2e.launching import ONE_RANK

pytestmark = pytest.mark.slow
NUM_ROWS = 4000


def dlrm(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "cli", *arguments]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_model_that_was_downloaded_scores_rows_as_the_one_of_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.DataFrame(
        {"label": [n % 3 == 0 for n in range(NUM_ROWS)], "age": range(NUM_ROWS), "site": ["a", "b"] * 2000}
    )
    rows = rows.with_columns(pl.col("label").cast(int))
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    work.mkdir()
    rows.write_parquet(data / "rows.parquet")
    schema = {"label": "label", "dense": [{"name": "age"}], "categorical": [{"name": "site"}]}
    document: dict[str, Any] = {
        "data": {"train": ["rows.parquet"], "format": "parquet", "schema": schema},
        "model": {"embedding_dim": 8, "bottom_mlp": [8], "top_mlp": [8, 1]},
        "batch": {"global_size": 512},
        "run": {"epochs": 1, "yardsticks": "none"},
        "resources": ONE_RANK,
    }
    with run_service(tmp_path / "state", {"DLRM_NUM_CORES": "2", "DLRM_DATA_ROOTS": str(data)}) as client:
        job = list(client.follow(client.submit(document).id))[-1]
        assert job.state == "SUCCEEDED", job.message
        monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
        assert dlrm(work, "download", job.id) == f"{job.id}/model\n"
        results = json.loads(dlrm(work, "download", job.id, "checkpoint", "log", "--to", "rest", "--json"))
        assert "attempt-1/logs/rank-0.log" in results["paths"]
        assert any(name.startswith("checkpoints/step-") for name in results["paths"])
        assert "rank 0" in dlrm(work, "logs", job.id, "--search", "RANK 0")
    scores = dlrm(work, "predict", f"{job.id}/model", str(data / "rows.parquet"))
    assert len(scores.splitlines()) == NUM_ROWS
    assert scores == dlrm(work, "predict", str(job.model_path), str(data / "rows.parquet"))
