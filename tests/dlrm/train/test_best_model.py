"""The model that a run leaves is that of its best evaluation, however often the run was stopped."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cli.commands.scoring import find_kept_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.config import ResolvedJob, list_differences
from dlrm.record import EndReason, EvaluationReport, Outcome, RunDirectory, TrainedModel
from dlrm.reporting.reporter import Reporter
from dlrm.train.best_model import choose_model
from dlrm.train.context import RunContext
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from tests.dlrm.train.test_run import list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

OVERFITTING: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 4000, "num_ids": 400}},
    "dense_optimizer": {"name": "adam", "learning_rate": 0.02, "schedule": {"decay": "constant"}},
    "table_optimizer": {"learning_rate": 0.2},
}
"""A job that memorises its few rows within some epochs."""


def resolve_overfitting_job(**run: Any) -> ResolvedJob:
    settings = {"epochs": 12, "validation_fraction": 0.2, "eval_every_fraction": 0.05, "checkpoint_every_seconds": 3600}
    return resolve_job(**OVERFITTING, run={**settings, **run})


def read_weights(path: Path) -> dict[str, Any]:
    return load_file(RunDirectory(path).model / "model.safetensors")


def train(rank_pools: RankPools, path: Path, job: ResolvedJob) -> Outcome:
    return rank_pools.of(2).run(run_attempt, path, 1, job, None)[0]


@pytest.fixture(scope="module")
def overfitted(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A run that gets worse, and keeps no checkpoints but the newest one and that of its best model."""
    path = tmp_path_factory.mktemp("overfitted")
    return path, train(rank_pools, path, resolve_overfitting_job(keep_checkpoints=1))


def test_a_run_that_gets_worse_leaves_its_best_model(overfitted: tuple[Path, Outcome]):
    path, outcome = overfitted
    curve = read_curve(path, 1)
    losses = {report.step: report.validation_log_loss for report in curve.evaluations}
    assert None not in losses.values()
    best = min(losses, key=lambda step: losses[step] or 0.0)
    assert best < outcome.step  # pyright: ignore[reportOperatorIssue]
    (chosen,) = (report for report in curve.evaluations if report.step == best)
    assert outcome.metrics["model_step"] == best
    assert (outcome.metrics["auc"], outcome.metrics["log_loss"]) == (chosen.auc, chosen.log_loss)
    saved = read_whole(RunDirectory(path).checkpoint(best))
    for name, weight in read_weights(path).items():
        if name.startswith("dense."):
            assert weight.equal(saved[name])
    # Validation rows are not trained on, and are measured by themselves.
    assert curve.steps[-1].num_samples == pytest.approx(12 * 0.8 * 0.9 * 4000, rel=0.02)
    assert outcome.metrics["validation_auc"] not in (None, outcome.metrics["auc"])
    assert 0.5 < (outcome.metrics["validation_calibration"] or 0.0) < 2.0


def test_the_last_model_is_left_where_the_job_asks_for_it(rank_pools: RankPools, tmp_path: Path):
    outcome = train(rank_pools, tmp_path, resolve_overfitting_job(keep_model="last", epochs=3))
    last = read_curve(tmp_path, 1).evaluations[-1]
    assert (outcome.metrics["model_step"], outcome.metrics["auc"]) == (outcome.step, last.auc)
    assert [path.name for path in RunDirectory(tmp_path).checkpoints.iterdir()] == [f"step-{outcome.step:08}"]


def test_a_run_ends_after_so_many_evaluations_without_a_better_model(rank_pools: RankPools, tmp_path: Path):
    outcome = train(rank_pools, tmp_path, resolve_overfitting_job(patience=3))
    losses = [report.validation_log_loss or 0.0 for report in read_curve(tmp_path, 1).evaluations]
    assert (outcome.state, outcome.reason) == ("succeeded", EndReason.NO_IMPROVEMENT)
    assert losses.index(min(losses)) == len(losses) - 4
    best = f"was best after step {outcome.metrics['model_step']:,.0f}, with a log-loss of {min(losses):.4f} on the"
    early = "since 3 evaluations in a row found no better model"
    assert early in outcome.message
    assert best in outcome.message
    events = RunDirectory(tmp_path).attempt(1).spool_file(0, "events").read_text()
    assert early in events
    again = rank_pools.of(2).run(run_attempt, tmp_path, 2, resolve_overfitting_job(patience=3), None)[0]
    assert (again.reason, again.step, again.metrics["auc"]) == (outcome.reason, outcome.step, outcome.metrics["auc"])


@pytest.mark.slow
def test_a_run_whose_patience_ends_with_its_last_row_has_not_ended_early(rank_pools: RankPools, tmp_path: Path):
    train(rank_pools, tmp_path / "patient", resolve_overfitting_job(epochs=6))
    losses = [report.validation_log_loss or 0.0 for report in read_curve(tmp_path / "patient", 1).evaluations]
    num_since_best = len(losses) - 1 - losses.index(min(losses))
    assert num_since_best > 0
    outcome = train(rank_pools, tmp_path / "just", resolve_overfitting_job(epochs=6, patience=num_since_best))
    assert (outcome.reason, outcome.message) == (EndReason.COMPLETED, "")


def test_a_checkpoint_with_every_kth_row_held_out_is_of_another_run():
    """Earlier versions wrote them; their training rows are validation rows now."""
    settings = RunIdentity.from_job(resolve_overfitting_job(), None).settings
    earlier = {field: value for field, value in settings.items() if field != "run.validation_rows"}
    (difference,) = list_differences(settings, earlier)
    assert difference.startswith("run.validation_rows is")
    without = RunIdentity.from_job(resolve_overfitting_job(validation_fraction=0.0), None).settings
    assert "run.validation_rows" not in without


@pytest.mark.slow
def test_a_stopped_run_chooses_the_same_model(rank_pools: RankPools, tmp_path: Path):
    job = resolve_overfitting_job(patience=3, epochs=8)
    straight = train(rank_pools, tmp_path / "straight", job)
    expected = list_figures(read_curve(tmp_path / "straight", 1))
    for num_looks in (9, 40, 66):
        path = tmp_path / str(num_looks)
        rank_pools.of(2).run(run_attempt, path, 1, job, num_looks)
        second: Outcome = rank_pools.of(2).run(run_attempt, path, 2, job, None)[0]
        assert (second.reason, second.metrics["model_step"]) == (straight.reason, straight.metrics["model_step"])
        assert list_figures(read_curve(path, 2)) == expected
        weights = read_weights(tmp_path / "straight")
        assert all(weight.equal(weights[name]) for name, weight in read_weights(path).items())


def test_the_checkpoint_of_a_model_is_that_of_its_step(overfitted: tuple[Path, Outcome]):
    path, outcome = overfitted
    model = TrainedModel.find(path)
    assert model.checkpoint is not None
    assert model.checkpoint.step == model.read_record().step == outcome.metrics["model_step"] != outcome.step
    assert find_kept_checkpoint(path) == str(model.checkpoint.path)


def choose(ranks: Ranks, path: Path, best: EvaluationReport, last: EvaluationReport, reason: EndReason) -> str:
    """Choose between the models of two evaluations of a run that has ended, and return the name of the checkpoint."""
    directory = RunDirectory(path)
    attempt = directory.attempt(2)
    attempt.create()
    context = RunContext(
        resolve_overfitting_job(), directory, attempt.profile, ranks, Reporter(attempt, ranks.rank), StopRequest()
    )
    progress = RunProgress(num_steps=last.step, step=last.step, best_evaluation=best, last_evaluation=last)
    return choose_model(context, progress, directory.checkpoint(last.step), reason).checkpoint.name


def test_a_damaged_checkpoint_of_the_best_model_leaves_the_last_one_with_a_warning(
    rank_pools: RankPools, overfitted: tuple[Path, Outcome], tmp_path: Path
):
    outcome = overfitted[1]
    shutil.copytree(overfitted[0], tmp_path, dirs_exist_ok=True)
    evaluations = {report.step: report for report in read_curve(tmp_path, 1).evaluations}
    best, last = evaluations[int(outcome.metrics["model_step"] or 0)], evaluations[outcome.step or 0]

    def choose_after(reason: EndReason) -> str:
        (chosen,) = set(rank_pools.of(2).run(choose, tmp_path, best, last, reason))
        return chosen

    assert choose_after(EndReason.COMPLETED) == f"step-{best.step:08}"
    # The target was measured on the model of the last step.
    assert choose_after(EndReason.TARGET_REACHED) == f"step-{last.step:08}"
    largest = max(RunDirectory(tmp_path).checkpoint(best.step).iterdir(), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"!")
    assert choose_after(EndReason.COMPLETED) == f"step-{last.step:08}"
    shutil.rmtree(largest.parent)
    assert choose_after(EndReason.COMPLETED) == f"step-{last.step:08}"
    assert "best_model_lost" in RunDirectory(tmp_path).attempt(2).spool_file(0, "events").read_text()
