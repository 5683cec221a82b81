"""Runs whose model is blended with logistic regression at their end."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.exported_model.load import load_saved_model
from dlrm.programs import evaluate, export
from dlrm.record import EndReason, EventReport, Outcome, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from tests.dlrm.train.test_run import list_events, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

RUN: dict[str, Any] = {
    "epochs": 2,
    "eval_every_fraction": 0.25,
    "validation_fraction": 0.2,
    "blend": "logistic",
    "yardsticks": "none",
}


def resolve_blending_job(num_ranks: int = 2, **run: Any) -> ResolvedJob:
    resources = {"workers_per_node": num_ranks}
    return resolve_job(run={**RUN, **run}, moments={"estimator": "exact", "every": 2}, resources=resources)


def train(rank_pools: RankPools, path: Path, job: ResolvedJob, num_ranks: int = 2) -> Outcome:
    path.mkdir(exist_ok=True)
    (path / "spec.json").write_text(job.model_dump_json())
    return rank_pools.of(num_ranks).run(run_attempt, path, 1, job, None)[0]


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(RunDirectory(path).model / "model.safetensors")


def read_events(path: Path) -> dict[str, EventReport]:
    return {event.name: event for event in list_events(path)}


def assert_same_model(one: tuple[Path, Outcome], other: tuple[Path, Outcome]) -> None:
    """Compare the files of both models, and all figures but those of time."""
    files = [(RunDirectory(path).model / "model.safetensors").read_bytes() for path, _ in (one, other)]
    assert files[0] == files[1]
    figures = [
        {name: value for name, value in outcome.metrics.items() if name != "samples_per_second"}
        for _, outcome in (one, other)
    ]
    assert figures[0] == figures[1]


@pytest.fixture(scope="module")
def blended(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    path = tmp_path_factory.mktemp("blended")
    return path, train(rank_pools, path, resolve_blending_job())


def test_the_metrics_of_a_blended_run_are_those_of_the_model_that_it_leaves(blended: tuple[Path, Outcome]):
    path, outcome = blended
    model = load_saved_model(RunDirectory(path).model)
    assert model.config.first_order_share == read_events(path)["blended"].details["share"] > 0
    assert outcome.metrics["blend_share"] == model.config.first_order_share
    dataset = open_data(resolve_blending_job().job.data, None, None)
    assert read_events(path)["blended"].details["num_train_rows"] == dataset.train.num_rows
    rows = dataset.evaluation
    read = rows.read(np.arange(rows.num_rows, dtype=np.int64))
    ids = (torch.from_numpy(read.ids.values), torch.from_numpy(read.ids.lengths))
    with torch.no_grad():
        logits = model.module.double()(torch.from_numpy(read.dense).double(), *ids).numpy()
    log_loss = np.mean(np.log1p(np.exp(logits)) - read.labels * logits)
    assert outcome.metrics["log_loss"] == pytest.approx(log_loss, rel=1e-5)
    assert outcome.metrics["num_rows"] == rows.num_rows
    assert json.loads((RunDirectory(path).model / "metrics.json").read_text()) == outcome.metrics


def test_a_blend_changes_nothing_of_the_trained_part(
    rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path
):
    plain = train(rank_pools, tmp_path, resolve_blending_job(blend="none"))
    weights = read_weights(blended[0])
    alone = read_weights(tmp_path)
    assert all(weight.equal(weights[name]) for name, weight in alone.items())
    assert all(name.startswith("first_order.") for name in weights.keys() - alone.keys())
    loss, alone_loss = (metrics["validation_log_loss"] or 0.0 for metrics in (blended[1].metrics, plain.metrics))
    assert loss < alone_loss


@pytest.mark.slow
def test_a_stopped_run_leaves_the_same_blend(rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path):
    job = resolve_blending_job()
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    rank_pools.of(2).run(run_attempt, tmp_path, 1, job, 9)
    outcome: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 2, job, None)[0]
    assert_same_model((tmp_path, outcome), blended)


class StopAtProgram(StopRequest):
    """Is asked to stop once this process runs a program, and stays so."""

    _is_asked = False

    @property
    def is_requested(self) -> bool:
        self._is_asked |= bool(psutil.Process().children())
        return self._is_asked

    @is_requested.setter
    def is_requested(self, value: bool) -> None:
        """It is nobody else's to say."""


class KillAtProgram(StopRequest):
    """Is never asked to stop; does what the kernel does where memory is short, once the program is the first to end."""

    @property
    def is_requested(self) -> bool:
        for child in psutil.Process().children():
            if Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "1000":
                child.kill()
        return False

    @is_requested.setter
    def is_requested(self, value: bool) -> None:
        """It is nobody else's to say."""


def run_asked(ranks: Ranks, path: Path, job: ResolvedJob, stop: type[StopRequest]) -> Outcome:
    directory = RunDirectory(path)
    attempt = directory.attempt(1)
    attempt.create()
    return run(RunContext(job, directory, attempt.profile, ranks, Reporter(attempt, ranks.rank), stop()))


@pytest.mark.slow
def test_a_run_stopped_while_it_blends_leaves_no_model_until_it_resumes(
    rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path
):
    job = resolve_blending_job()
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    stopped = rank_pools.of(2).run(run_asked, tmp_path, job, StopAtProgram)[0]
    assert (stopped.state, stopped.reason) == ("stopped", EndReason.STOP_REQUESTED)
    assert "before the model was blended" in stopped.message
    assert not RunDirectory(tmp_path).model.exists()
    assert "blend_failed" not in read_events(tmp_path)
    outcome: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 2, job, None)[0]
    assert_same_model((tmp_path, outcome), blended)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is told whom to end first on Linux alone")
def test_a_run_whose_blend_takes_too_much_memory_keeps_the_trained_model(
    rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path
):
    job = resolve_blending_job()
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    outcome = rank_pools.of(2).run(run_asked, tmp_path, job, KillAtProgram)[0]
    assert outcome.state == "succeeded"
    assert "killed by SIGKILL; often the kernel's out-of-memory killer" in read_events(tmp_path)["blend_failed"].message
    assert "blend_share" not in outcome.metrics
    weights = read_weights(blended[0])
    trained = {name: weight for name, weight in weights.items() if not name.startswith("first_order.")}
    left = read_weights(tmp_path)
    assert left.keys() == trained.keys()
    assert all(weight.equal(trained[name]) for name, weight in left.items())
    assert not RunDirectory(tmp_path).blend.exists()


@pytest.mark.slow
def test_one_rank_leaves_the_same_blend_as_two(rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path):
    outcome = train(rank_pools, tmp_path, resolve_blending_job(num_ranks=1), num_ranks=1)
    shares = [load_saved_model(RunDirectory(path).model).config.first_order_share for path in (tmp_path, blended[0])]
    assert shares[0] == shares[1]
    assert outcome.metrics["log_loss"] == pytest.approx(blended[1].metrics["log_loss"], rel=1e-4)


def test_an_exported_checkpoint_of_a_blended_run_is_its_model(
    blended: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path, outcome = blended
    name, output = f"step-{outcome.metrics['model_step']:.0f}", tmp_path / "model"
    monkeypatch.setattr(sys, "argv", ["export", str(path), "--checkpoint", name, "--output", str(output)])
    export.main()
    result = json.loads(capsys.readouterr().out)
    assert (output / "model.safetensors").read_bytes() == (RunDirectory(path).model / "model.safetensors").read_bytes()
    for figure in ("auc", "log_loss", "calibration", "validation_log_loss", "blend_share"):
        assert result[figure] == pytest.approx(outcome.metrics[figure], rel=1e-6)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(path), "--checkpoint", name])
    evaluate.main()
    assert json.loads(capsys.readouterr().out)["log_loss"] == pytest.approx(outcome.metrics["log_loss"], rel=1e-6)


@pytest.mark.parametrize("optimizer_state", [False, True])
def test_a_run_from_a_blended_model_begins_with_its_trained_part(
    rank_pools: RankPools, blended: tuple[Path, Outcome], tmp_path: Path, optimizer_state: bool
):
    warm_start = {"from": str(blended[0]), "optimizer_state": optimizer_state}
    # The rates are too small to change a weight.
    job = resolve_job(
        run={**RUN, "epochs": 0.2, "warm_start": warm_start, "blend": "none"},
        moments={"estimator": "exact", "every": 2},
        dense_optimizer={"name": "adam", "learning_rate": 1e-30},
        table_optimizer={"learning_rate": 1e-30},
    )
    assert train(rank_pools, tmp_path, job).state == "succeeded"
    trained, weights = read_weights(tmp_path), read_weights(blended[0])
    assert all(weight.equal(weights[name]) for name, weight in trained.items())
    event = read_events(tmp_path)["blend_left_out"]
    assert event.details["share"] == blended[1].metrics["blend_share"]
    assert 'its own model is not blended (run.blend is "none")' in event.message


@pytest.mark.slow
def test_a_run_without_validation_rows_says_that_it_is_not_blended(rank_pools: RankPools, tmp_path: Path):
    outcome = train(rank_pools, tmp_path, resolve_blending_job(validation_fraction=0.0, epochs=0.25))
    assert outcome.state == "succeeded"
    assert "no validation rows" in read_events(tmp_path)["blend_failed"].message
    assert not any(name.startswith("first_order.") for name in read_weights(tmp_path))
