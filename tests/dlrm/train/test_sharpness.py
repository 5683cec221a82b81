"""Runs that measure the sharpness of their model at the end."""

from pathlib import Path
from typing import Any

import pytest

from dlrm.config import ResolvedJob
from dlrm.record import SHARPNESS_FIGURES, Outcome, RunDirectory
from tests.dlrm.train.test_run import list_events, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

RUN: dict[str, Any] = {"eval_every_fraction": 0.25, "yardsticks": "none", "blend": "none", "num_train_eval_rows": 600}


def resolve_measuring_job(num_ranks: int = 2, sharpness: object = None, **run: Any) -> ResolvedJob:
    return resolve_job(run={**RUN, "sharpness": sharpness, **run}, resources={"workers_per_node": num_ranks})


def train(rank_pools: RankPools, path: Path, job: ResolvedJob, num_ranks: int = 2) -> Outcome:
    path.mkdir(exist_ok=True)
    (path / "spec.json").write_text(job.model_dump_json())
    outcome: Outcome = rank_pools.of(num_ranks).run(run_attempt, path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    return outcome


def list_sharpness(outcome: Outcome) -> dict[str, float | None]:
    return {name: outcome.metrics[name] for name in SHARPNESS_FIGURES}


@pytest.mark.slow
def test_one_rank_and_two_measure_the_same_and_the_gap_of_the_evaluations(rank_pools: RankPools, tmp_path: Path):
    outcomes = [train(rank_pools, tmp_path / str(n), resolve_measuring_job(n, {"num_rows": 600}), n) for n in (1, 2)]
    one, two = map(list_sharpness, outcomes)
    assert one == pytest.approx(two, rel=1e-5, abs=1e-6)
    for name, value in two.items():
        card = (RunDirectory(tmp_path / "2").model / "MODEL_CARD.md").read_text()
        assert value is not None
        assert f"| {SHARPNESS_FIGURES[name]} | {value:.5f} |" in card
    metrics = outcomes[1].metrics
    for name in ("auc", "log_loss"):
        gap = (metrics[f"train_{name}"] or 0.0) - (metrics[name] or 0.0)
        assert metrics[f"train_{name}_gap"] == pytest.approx(gap, abs=1e-5)
    assert {event.name: event for event in list_events(tmp_path / "2")}["sharpness"].details == two


@pytest.mark.slow
def test_all_else_is_as_without_it(rank_pools: RankPools, tmp_path: Path):
    measured = train(rank_pools, tmp_path / "measured", resolve_measuring_job(sharpness={"num_rows": 600}))
    plain = train(rank_pools, tmp_path / "plain", resolve_measuring_job(sharpness=False))
    assert measured.metrics.keys() - plain.metrics.keys() == SHARPNESS_FIGURES.keys()
    assert all(measured.metrics[name] == plain.metrics[name] for name in ("auc", "log_loss", "train_auc"))
    models = [
        (RunDirectory(tmp_path / name).model / "model.safetensors").read_bytes() for name in ("measured", "plain")
    ]
    assert models[0] == models[1]


def test_a_measurement_that_fails_is_reported_and_the_model_is_left(rank_pools: RankPools, tmp_path: Path):
    # Without its document the program cannot know the rows.
    job = resolve_measuring_job(sharpness={})
    outcome: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 1, job, None)[0]
    assert outcome.state == "succeeded"
    assert not SHARPNESS_FIGURES.keys() & outcome.metrics.keys()
    assert "exit code 1" in {event.name: event for event in list_events(tmp_path)}["sharpness_failed"].message
    assert (RunDirectory(tmp_path).model / "model.safetensors").exists()
