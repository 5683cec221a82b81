"""Evaluations on a sample of the training rows: AUC and log-loss by their definitions, and nothing else changes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.data.split import hold_out_validation, sample_train_rows
from dlrm.exported_model.load import load_saved_model
from dlrm.programs import export
from dlrm.record import Outcome, RunDirectory
from tests.dlrm.train.test_run import list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

NUM_ROWS = 500
RUN: dict[str, Any] = {"eval_every_fraction": 0.25, "yardsticks": "none", "validation_fraction": 0.1, "blend": "none"}


def resolve_sampling_job(num_rows: int = NUM_ROWS, **changes: Any) -> ResolvedJob:
    run = {**RUN, "num_train_eval_rows": num_rows, **changes.pop("run", {})}
    return resolve_job(run=run, **changes)


def train(rank_pools: RankPools, path: Path, job: ResolvedJob, world_size: int = 2) -> Outcome:
    path.mkdir(exist_ok=True)
    (path / "spec.json").write_text(job.model_dump_json())
    outcome: Outcome = rank_pools.of(world_size).run(run_attempt, path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    return outcome


def score_by_definition(path: Path, job: ResolvedJob) -> tuple[float, float]:
    """Return AUC and log-loss of the exported model on the sample, in float64: the share of pairs of a positive and a
    negative row that are in order, and the mean of -log p of the label."""
    config = job.job
    dataset = open_data(config.data, None, None)
    held_out = hold_out_validation(dataset, config.run.validation_fraction, config.data.split, config.run.seed)
    sample = sample_train_rows(held_out, config.run.num_train_eval_rows)
    assert sample is not None
    rows = sample.read(np.arange(sample.num_rows))
    model = load_saved_model(RunDirectory(path).model).module.double()
    ids = (torch.from_numpy(rows.ids.values), torch.from_numpy(rows.ids.lengths))
    with torch.no_grad():
        logits = model(torch.from_numpy(rows.dense).double(), *ids).numpy()
    positive, negative = logits[rows.labels == 1], logits[rows.labels == 0]
    order = np.sign(positive[:, None] - negative[None, :])
    probabilities = np.where(rows.labels == 1, 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits)))
    return float((order + 1).mean() / 2), float(-np.log(probabilities).mean())


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("averaging", [None, {"half_life_fraction": 0.3}], ids=["weights", "average"])
def test_auc_and_log_loss_of_the_sample_are_those_of_the_model_that_is_left(
    rank_pools: RankPools, tmp_path: Path, averaging: dict[str, float] | None, world_size: int
):
    job = resolve_sampling_job(averaging=averaging, resources={"workers_per_node": world_size})
    outcome = train(rank_pools, tmp_path, job, world_size)
    auc, log_loss = score_by_definition(tmp_path, job)
    assert outcome.metrics["train_auc"] == pytest.approx(auc, abs=2e-5)
    assert outcome.metrics["train_log_loss"] == pytest.approx(log_loss, rel=1e-5)
    evaluations = read_curve(tmp_path, 1).evaluations
    assert len(evaluations) == 4
    assert len({report.train_log_loss for report in evaluations}) == 4
    (best,) = (report for report in evaluations if report.step == outcome.metrics["model_step"])
    assert (best.train_auc, best.train_log_loss) == tuple(
        outcome.metrics[f"train_{name}"] for name in ("auc", "log_loss")
    )
    assert f"AUC {best.train_auc:.5f}" in (RunDirectory(tmp_path).model / "MODEL_CARD.md").read_text()


@pytest.mark.slow
def test_all_else_is_as_without_it(rank_pools: RankPools, tmp_path: Path):
    train(rank_pools, tmp_path / "sampled", resolve_sampling_job())
    outcome = train(rank_pools, tmp_path / "plain", resolve_sampling_job(0))
    curves = [read_curve(tmp_path / name, 1) for name in ("sampled", "plain")]
    assert list_figures(curves[0]) == list_figures(curves[1])
    assert all(report.train_auc is report.train_log_loss is None for report in curves[1].evaluations)
    assert outcome.metrics["train_auc"] is outcome.metrics["train_log_loss"] is None
    models = [(RunDirectory(tmp_path / name).model / "model.safetensors").read_bytes() for name in ("sampled", "plain")]
    assert models[0] == models[1]


@pytest.mark.slow
def test_the_gap_of_a_blended_model_is_its_own(rank_pools: RankPools, tmp_path: Path):
    job = resolve_sampling_job(run={"blend": "logistic", "epochs": 2})
    outcome = train(rank_pools, tmp_path, job)
    assert outcome.metrics["blend_share"]
    auc, log_loss = score_by_definition(tmp_path, job)
    assert outcome.metrics["train_auc"] == pytest.approx(auc, abs=2e-5)
    assert outcome.metrics["train_log_loss"] == pytest.approx(log_loss, rel=1e-5)


def test_a_checkpoint_that_no_evaluation_has_measured_is_exported_without_them(
    rank_pools: RankPools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    job = resolve_sampling_job()
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    rank_pools.of(2).run(run_attempt, tmp_path, 1, job, 9)
    output = tmp_path / "exported"
    arguments = ["export", str(tmp_path), "--checkpoint", "newest", "--output", str(output)]
    monkeypatch.setattr("sys.argv", arguments)
    assert export.main() == 0
    metrics = json.loads(capsys.readouterr().out)
    others = ("train_auc", "train_log_loss", "validation_log_loss", "validation_auc", "validation_calibration")
    assert [metrics[name] for name in others] == [None] * len(others)
    assert 0 < metrics["model_step"] == metrics["step"] != metrics["best_step"]
