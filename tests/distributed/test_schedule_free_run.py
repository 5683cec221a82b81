"""Runs with schedule-free AdamW: what they evaluate, save, leave and go on from is the average of the weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dlrm.data.open import open_data
from dlrm.exported_model.blend import score_source
from dlrm.exported_model.layout import CARD
from dlrm.exported_model.load import load_saved_model
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.record import Outcome, RunDirectory
from tests.distributed.test_averaging import run_whole
from tests.dlrm.train.test_run import list_figures, read_curve, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools
from tests.sharding.read_checkpoint import read_whole

SCHEDULE_FREE: dict[str, Any] = {"dense_optimizer": {"name": "schedule_free", "learning_rate": 0.01}}


@pytest.fixture(scope="module")
def trained(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained")
    run_whole(rank_pools, path, **SCHEDULE_FREE)
    return path


def test_the_model_that_is_left_is_the_average_that_was_evaluated(trained: Path):
    model = load_file(RunDirectory(trained).model / "model.safetensors")
    reported = read_curve(trained, 1).evaluations[-1]
    saved = read_whole(RunDirectory(trained).checkpoint(reported.step))
    averages = [value for key, value in saved.items() if key.startswith("dense_optimizer.state.") and key.endswith("x")]
    dense = {name: tensor for name, tensor in model.items() if name.startswith("dense.")}
    assert len(averages) == len(dense)
    for name, tensor in dense.items():
        assert any(tensor.shape == average.shape and torch.equal(tensor, average) for average in averages), name
    job = resolve_job(**SCHEDULE_FREE).job
    dataset = open_data(job.data, [], None)
    scored = score_source(load_saved_model(RunDirectory(trained).model).module, dataset.evaluation)
    measured = compute_binary_metrics(scored.labels, scored.logits, scored.weights)
    assert (measured.auc, measured.log_loss) == pytest.approx((reported.auc, reported.log_loss), rel=1e-6)


def test_the_card_says_that_the_dense_parameters_are_an_average(trained: Path):
    assert "Its dense parameters are an average over the steps." in (RunDirectory(trained).model / CARD).read_text()


@pytest.mark.slow
def test_a_run_stopped_at_any_look_leaves_the_same_model(rank_pools: RankPools, trained: Path, tmp_path: Path):
    job = resolve_job(**SCHEDULE_FREE)
    weights = (RunDirectory(trained).model / "model.safetensors").read_bytes()
    for num_looks in (5, 7, 14):
        path = tmp_path / str(num_looks)
        first: Outcome = rank_pools.of(2).run(run_attempt, path, 1, job, num_looks)[0]
        assert first.state == "stopped"
        rank_pools.of(2).run(run_attempt, path, 2, job, None)
        assert list_figures(read_curve(path, 2)) == list_figures(read_curve(trained, 1))
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("optimizer_state", [False, True])
def test_a_warm_start_goes_on_from_the_average(
    rank_pools: RankPools, trained: Path, tmp_path: Path, optimizer_state: bool
):
    run = {"eval_every_fraction": 0.25, "yardsticks": "none"}
    run["warm_start"] = {"from": str(trained), "optimizer_state": optimizer_state}
    # Rates whose squares are numbers of fp32, and whose steps are none.
    changes = {"dense_optimizer": {"name": "schedule_free", "learning_rate": 1e-15}}
    job = resolve_job(run=run, table_optimizer={"learning_rate": 1e-30}, **changes)
    outcome = rank_pools.of(2).run(run_attempt, tmp_path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    started, source = (load_file(RunDirectory(path).model / "model.safetensors") for path in (tmp_path, trained))
    for name, tensor in source.items():
        torch.testing.assert_close(started[name], tensor, rtol=0, atol=1e-6)
    # The average begins anew: no step of the earlier run, at 0.01, has a weight in it.
    assert outcome.step is not None
    saved = read_whole(RunDirectory(tmp_path).checkpoint(outcome.step))
    totals = [value.item() for name, value in saved.items() if name.endswith("squared_rates")]
    assert max(totals) == pytest.approx(min(totals))
    assert 0.0 < max(totals) < 1e-20
