"""Checkpoints of a run as models: measured and exported."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrm.data.open import open_data
from dlrm.exported_model.load import load_saved_model
from dlrm.programs import evaluate, export
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, RunDirectory, YardstickResult, list_checkpoints
from tests.dlrm.train.test_run import resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

Program = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def run_directory(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run that was stopped between two evaluations, and resumed to its end."""
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    job = resolve_job()
    directory.spec.write_text(job.model_dump_json())
    for number, num_looks in ((1, 3), (2, None)):
        rank_pools.of(2).run(run_attempt, directory.path, number, job, num_looks)
    return directory


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs a program in this process; returns its exit code, the JSON that it printed, and its stderr."""

    def run(main: Callable[[], int], *arguments: object) -> tuple[int, Any, str]:
        monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
        code = main()
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    return run


def test_the_export_of_the_last_checkpoint_is_the_model_of_the_run(
    run_directory: RunDirectory, program: Program, tmp_path: Path
):
    output = tmp_path / "model"
    code, result, _ = program(export.main, run_directory.path, "--checkpoint", "newest", "--output", output)
    assert code == EXIT_DONE
    assert result["step"] == list_checkpoints(run_directory.checkpoints)[0].step
    files = {path.name for path in run_directory.model.iterdir()}
    assert {path.name for path in output.iterdir()} == files
    for name in ("model.safetensors", "metrics.json"):
        assert (output / name).read_bytes() == (run_directory.model / name).read_bytes()
    _, last, _ = program(evaluate.main, "--checkpoint", "newest", run_directory.path)
    _, model, _ = program(evaluate.main, run_directory.model)
    assert last == model


def test_a_checkpoint_that_the_run_did_not_evaluate_is_measured_when_it_is_exported(
    run_directory: RunDirectory, program: Program, tmp_path: Path
):
    checkpoint = list_checkpoints(run_directory.checkpoints)[-1]
    output = tmp_path / "model"
    code, result, _ = program(export.main, run_directory.path, "--checkpoint", checkpoint.path, "--output", output)
    assert code == EXIT_DONE
    assert result["num_samples"] == checkpoint.read_manifest().num_samples
    model = load_saved_model(output)
    rows = open_data(resolve_job().job.data, None, None).evaluation
    read = rows.read(np.arange(rows.num_rows, dtype=np.int64))
    ids = (torch.from_numpy(read.ids.values), torch.from_numpy(read.ids.lengths))
    with torch.no_grad():
        logits = model.module.double()(torch.from_numpy(read.dense).double(), *ids).numpy()
    log_loss = np.mean(np.log1p(np.exp(logits)) - read.labels * logits)
    assert result["log_loss"] == pytest.approx(log_loss, rel=1e-5)
    assert json.loads((output / "metrics.json").read_text())["log_loss"] == result["log_loss"]
    assert f"{result['log_loss']:.5f}" in (output / "MODEL_CARD.md").read_text()

    name = f"step-{checkpoint.step}"
    _, measured, _ = program(evaluate.main, "--checkpoint", name, run_directory.path)
    assert measured["log_loss"] == result["log_loss"]


def test_simple_models_that_the_run_has_measured_stay_beside_the_metrics(
    run_directory: RunDirectory, program: Program, tmp_path: Path
):
    copy = RunDirectory(tmp_path / "copy")
    shutil.copytree(run_directory.path, copy.path)
    measured = YardstickResult(
        name="logistic_regression",
        auc=0.7,
        auc_standard_error=0.01,
        log_loss=0.5,
        calibration=1.0,
        seconds=2.0,
        num_train_rows=9,
        num_rows=9,
    ).to_metrics()
    path = copy.model / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **measured}))
    for checkpoint in list_checkpoints(copy.checkpoints):
        output = tmp_path / checkpoint.path.name
        _, result, _ = program(export.main, copy.path, "--checkpoint", checkpoint.path, "--output", output)
        assert result.items() >= measured.items()
        assert "logistic regression" in (output / "MODEL_CARD.md").read_text()


def test_a_checkpoint_that_is_missing_damaged_or_of_another_run_is_refused(
    run_directory: RunDirectory, program: Program, tmp_path: Path
):
    def refuse(directory: Path, name: str) -> str:
        code, _, err = program(evaluate.main, "--checkpoint", name, directory)
        assert code == EXIT_BAD_INPUT
        return err

    names = [checkpoint.path.name for checkpoint in list_checkpoints(run_directory.checkpoints)]
    said = refuse(run_directory.path, "step-999")
    assert f"step-999 is no checkpoint in {run_directory.checkpoints} (valid: newest, {names[0]}" in said

    copy = RunDirectory(tmp_path / "copy")
    shutil.copytree(run_directory.path, copy.path)
    newest = list_checkpoints(copy.checkpoints)[0]
    part = copy.checkpoints / newest.path.name / next(iter(newest.read_manifest().files))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    assert f"{part.name} is damaged: its checksum differs" in refuse(copy.path, newest.path.name)

    job = resolve_job()
    run = job.job.run.model_copy(update={"seed": job.job.run.seed + 1})
    other = job.model_copy(update={"job": job.job.model_copy(update={"run": run})})
    copy.spec.write_text(other.model_dump_json())
    assert "the checkpoint belongs to a run with other settings: run.seed" in refuse(copy.path, names[-1])
