"""Runs on rows without some of the negatives, with groups and a recalibration: what they report and leave."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dlrm.config import ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.data.rows import RowSource
from dlrm.data.split import hold_out_validation
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.score import score
from dlrm.programs import compress, evaluate, export
from dlrm.record import Outcome, RunDirectory, SpoolReader, StepReport, parse_report
from tests.dlrm.metrics.test_grouped import compute_gauc, compute_ndcg, compute_recall
from tests.dlrm.train.test_blend import assert_same_model, read_events, train
from tests.dlrm.train.test_run import resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

SHARE = 0.1
RUN: dict[str, Any] = {
    "epochs": 2,
    "eval_every_fraction": 0.25,
    "validation_fraction": 0.2,
    "yardsticks": "none",
    "num_train_eval_rows": 600,
    "group_by": "C3",
    "recall_at": [1, 5],
    "keep_scores": True,
}
DATA = {"format": "synthetic", "synthetic": {"num_rows": 8000, "num_ids": 200}, "negative_sampling": SHARE}


def resolve_refining_job(num_ranks: int = 2, data: dict[str, Any] = DATA, **run: Any) -> ResolvedJob:
    resources = {"workers_per_node": num_ranks}
    moments = {"estimator": "exact", "every": 2}
    return resolve_job(data=data, run={"blend": "none", **RUN, **run}, moments=moments, resources=resources)


def open_rows(job: ResolvedJob) -> Dataset:
    run = job.job.run
    return hold_out_validation(open_data(job.job.data, None, None), run.validation_fraction, "hash", run.seed)


def measure(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Log-loss and calibration in float64, with each negative counted 1 / w times."""
    weights, logits = np.where(labels == 1, 1.0, 1 / SHARE), logits.astype(np.float64)
    losses = np.logaddexp(0, logits) - labels * logits
    calibration = (weights / (1 + np.exp(-logits))).sum() / (weights * labels).sum()
    return {"log_loss": np.average(losses, weights=weights), "calibration": calibration}


def score_rows(path: Path, rows: RowSource) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of the exported model, labels, and ids of the group."""
    read = rows.read(np.arange(rows.num_rows))
    names = [feature.name for feature in rows.schema.features]
    module = load_saved_model(RunDirectory(path).model).module
    return score(module, read), read.labels, read.ids.values.reshape(len(names), -1)[names.index("C3")]


@pytest.fixture(scope="module")
def blended(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    path = tmp_path_factory.mktemp("refined")
    return path, train(
        rank_pools, path, resolve_refining_job(recalibrate="isotonic", blend="logistic", yardsticks="logistic")
    )


@pytest.fixture(scope="module")
def corrected(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    path = tmp_path_factory.mktemp("corrected")
    return path, train(rank_pools, path, resolve_refining_job(yardsticks="logistic"))


@pytest.mark.parametrize("kind", ["blended", "corrected"])
def test_figures_of_the_exported_model_are_those_of_the_run_at_true_rates(
    kind: str, request: pytest.FixtureRequest
) -> None:
    path, outcome = request.getfixturevalue(kind)
    logits, labels, groups = score_rows(path, open_rows(resolve_refining_job()).evaluation)
    found = {**measure(logits, labels)}
    weights = np.where(labels == 1, 1.0, 1 / SHARE)
    gauc, num_rows = compute_gauc(labels, logits, weights, groups)
    found |= {"grouped_auc": gauc, "num_grouped_rows": num_rows}
    found |= {f"recall_at_{k}": compute_recall(labels, logits, weights, groups, k) for k in (1, 5)}
    found |= {f"ndcg_at_{k}": compute_ndcg(labels, logits, weights, groups, k) for k in (1, 5)}
    assert {name: outcome.metrics[name] for name in found} == pytest.approx(found, rel=2e-5)
    rate = open_rows(resolve_refining_job()).train_label_rate
    true_rate = rate / (rate + (1 - rate) / SHARE)
    assert load_saved_model(RunDirectory(path).model).config.train_label_rate == pytest.approx(true_rate)
    constant = -(np.where(labels == 1, np.log(true_rate), np.log1p(-true_rate)) @ weights) / weights.sum()
    assert outcome.metrics["constant_log_loss"] == pytest.approx(constant, rel=1e-6)
    # Logistic regression is at true rates too, where a sampled one would predict several times as much.
    assert outcome.metrics["logistic_regression_calibration"] == pytest.approx(1.0, abs=0.25)
    card = (RunDirectory(path).model / "MODEL_CARD.md").read_text()
    assert f"{np.log(SHARE):.4f} is added to its logit" in card
    assert f"| AUC within groups | {gauc:.5f} |" in card


def list_losses(path: Path) -> list[float | None]:
    lines = SpoolReader(RunDirectory(path).attempt(1).spool_file(0, "metrics")).read()
    return [report.loss for report in map(parse_report, lines) if isinstance(report, StepReport)]


def test_training_is_that_of_the_rows_as_they_are(
    rank_pools: RankPools, corrected: tuple[Path, Outcome], tmp_path: Path
) -> None:
    plain = train(rank_pools, tmp_path, resolve_refining_job(data={**DATA, "negative_sampling": None}))
    assert list_losses(tmp_path) == list_losses(corrected[0])
    assert plain.metrics["auc"] == pytest.approx(corrected[1].metrics["auc"], abs=1e-9)
    assert plain.metrics["log_loss"] != pytest.approx(corrected[1].metrics["log_loss"], rel=0.1)
    weights = [load_file(RunDirectory(path).model / "model.safetensors") for path in (tmp_path, corrected[0])]
    assert plain.metrics["model_step"] == corrected[1].metrics["model_step"]
    assert all(weight.equal(weights[1][name]) for name, weight in weights[0].items())


def test_a_recalibration_is_fitted_on_validation_rows_and_reported_before_and_after(
    blended: tuple[Path, Outcome],
) -> None:
    path, outcome = blended
    config = load_saved_model(RunDirectory(path).model).config
    assert config.recalibration is not None
    assert config.first_order_share is not None
    assert "isotonic" in read_events(path)["recalibrated"].message
    validation = open_rows(resolve_refining_job()).validation
    assert validation is not None
    # Logistic regression is fitted anew after the choice, so that both agree up to the difference that this makes.
    logits, labels, _ = score_rows(path, validation)
    assert measure(logits, labels)["calibration"] == pytest.approx(1.0, abs=0.1)
    for name in ("auc", "log_loss", "calibration"):
        assert outcome.metrics[f"uncalibrated_{name}"] != outcome.metrics[name]
    assert "log-loss before recalibration" in (RunDirectory(path).model / "MODEL_CARD.md").read_text()


def call(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    assert program.main() == 0
    return json.loads(capsys.readouterr().out)


def test_evaluation_export_and_compression_give_the_figures_of_the_run(
    blended: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, outcome = blended
    model, checkpoint = RunDirectory(path).model, f"step-{outcome.metrics['model_step']:.0f}"
    names = ["auc", "log_loss", "calibration", "constant_log_loss", "grouped_auc", "recall_at_5"]
    expected = {name: outcome.metrics[name] for name in names}
    evaluated = call(evaluate, monkeypatch, capsys, model)
    at_checkpoint = call(evaluate, monkeypatch, capsys, path, "--checkpoint", checkpoint)
    exported = call(export, monkeypatch, capsys, path, "--checkpoint", checkpoint, "--output", tmp_path / "exported")
    arguments = (model, "--tables", "fp32", "--dense", "fp32", "--prune", "0", "--output", tmp_path / "compressed")
    compressed = call(compress, monkeypatch, capsys, *arguments)["models"]["fp32 tables"]
    for found in (evaluated, at_checkpoint, exported, compressed):
        assert {name: found[name] for name in names} == pytest.approx(expected, rel=2e-5)
    assert exported["uncalibrated_log_loss"] == pytest.approx(outcome.metrics["uncalibrated_log_loss"], rel=2e-5)
    configs = [load_saved_model(written).config for written in (model, tmp_path / "exported", tmp_path / "compressed")]
    assert configs[0].recalibration == configs[1].recalibration == configs[2].recalibration


def test_kept_scores_are_at_true_rates(corrected: tuple[Path, Outcome]) -> None:
    path, outcome = corrected
    scores = RunDirectory(path).scores
    logits, labels, weights = (
        np.load(file)
        for file in (scores.logits(int(outcome.metrics["model_step"] or 0)), scores.labels, scores.weights)
    )
    np.testing.assert_array_equal(weights, np.where(labels == 1, np.float32(1), np.float32(1 / SHARE)))
    assert measure(logits, labels)["log_loss"] == pytest.approx(outcome.metrics["log_loss"], rel=1e-6)


@pytest.mark.slow
def test_a_stopped_run_leaves_the_same_model(
    rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path
) -> None:
    job = resolve_refining_job(recalibrate="isotonic", blend="logistic")
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    rank_pools.of(2).run(run_attempt, tmp_path, 1, job, 9)
    outcome: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 2, job, None)[0]
    figures = [
        {name: value for name, value in own.metrics.items() if not name.endswith("_seconds")}
        for own in (outcome, blended[1])
    ]
    assert_same_model(
        (tmp_path, outcome.model_copy(update={"metrics": figures[0]})),
        (blended[0], blended[1].model_copy(update={"metrics": figures[1]})),
    )
    configs = [load_saved_model(RunDirectory(path).model).config for path in (tmp_path, blended[0])]
    assert configs[0].recalibration == configs[1].recalibration


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 4])
def test_other_numbers_of_ranks_measure_the_same(
    rank_pools: RankPools, corrected: tuple[Path, Outcome], tmp_path: Path, num_ranks: int
) -> None:
    outcome = train(rank_pools, tmp_path, resolve_refining_job(num_ranks), num_ranks)
    for name in ("log_loss", "calibration", "grouped_auc", "recall_at_1", "train_log_loss", "validation_log_loss"):
        assert outcome.metrics[name] == pytest.approx(corrected[1].metrics[name], rel=1e-3)


def test_too_few_rows_to_hold_validation_rows_out_leave_the_model_with_a_warning(
    rank_pools: RankPools, tmp_path: Path
) -> None:
    job = resolve_refining_job(recalibrate="platt", validation_fraction=1e-6, epochs=0.25)
    outcome = train(rank_pools, tmp_path, job)
    assert outcome.state == "succeeded"
    assert "no validation rows" in read_events(tmp_path)["recalibration_failed"].message
    assert load_saved_model(RunDirectory(tmp_path).model).config.recalibration is None
