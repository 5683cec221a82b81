"""Whole runs on real ranks, stopped at all kinds of moments and continued."""

import gc
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dlrm.train.run
from dlrm.config import JobConfig, ResolvedJob, resolve
from dlrm.record import (
    EndReason,
    EvaluationReport,
    EventReport,
    Outcome,
    RunDirectory,
    SpoolReader,
    StartReport,
    StepReport,
    parse_report,
)
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.run import run
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables
from tests.rank_pool.pool import RankPools

DOCUMENT = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 8000, "num_ids": 200}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 512},
    "run": {"eval_every_fraction": 0.25, "yardsticks": "none"},
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
}
NUM_STEPS = 15


class StopAfter(StopRequest):
    """Is asked to stop when it has been looked at so many times."""

    def __init__(self, num_looks: int | None) -> None:
        super().__init__()
        self._num_looks = num_looks

    @property
    def is_requested(self) -> bool:
        if self._num_looks is not None:
            self._num_looks -= 1
        return self._num_looks is not None and self._num_looks < 0

    @is_requested.setter
    def is_requested(self, value: bool) -> None:
        """It is nobody else's to say."""


def resolve_job(**changes: Any) -> ResolvedJob:
    """Resolve DOCUMENT with other sections; yardsticks, which start a program, are measured if they are named."""
    run = {"yardsticks": "none"} | changes.pop("run", DOCUMENT["run"])
    return resolve(JobConfig.model_validate({**DOCUMENT, **changes, "run": run}))


def run_attempt(ranks: Ranks, path: Path, number: int, job: ResolvedJob, num_looks: int | None) -> Outcome:
    directory = RunDirectory(path)
    directory.attempt(number).create()
    # One rank alone is asked.
    stop = StopAfter(num_looks if ranks.rank == ranks.world_size - 1 else None)
    profile = directory.attempt(number).profile
    return run(RunContext(job, directory, profile, ranks, Reporter(directory.attempt(number), ranks.rank), stop))


@dataclass
class Curve:
    """The valid reports of all attempts."""

    steps: list[StepReport]
    evaluations: list[EvaluationReport]


def read_curve(path: Path, num_attempts: int) -> Curve:
    curve = Curve([], [])
    for number in range(1, num_attempts + 1):
        lines = SpoolReader(RunDirectory(path).attempt(number).spool_file(0, "metrics")).read()
        for report in map(parse_report, lines):
            if isinstance(report, StartReport):
                curve.steps = [step for step in curve.steps if step.step <= report.step]
                curve.evaluations = [past for past in curve.evaluations if past.step <= report.evaluated_step]
            elif isinstance(report, StepReport):
                curve.steps.append(report)
            elif isinstance(report, EvaluationReport):
                curve.evaluations.append(report)
    return curve


def list_events(path: Path, attempt: int = 1) -> list[EventReport]:
    """List the events that rank 0 reported."""
    lines = SpoolReader(RunDirectory(path).attempt(attempt).spool_file(0, "events")).read()
    return [report for report in map(parse_report, lines) if isinstance(report, EventReport)]


def list_figures(curve: Curve) -> tuple[list[Any], list[Any]]:
    steps = [(s.step, s.num_samples, s.loss, s.dense_learning_rate, s.table_learning_rate) for s in curve.steps]
    return steps, [(e.step, e.num_rows, e.auc, e.log_loss) for e in curve.evaluations]


@pytest.fixture(scope="module")
def straight(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("straight")
    outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_job(), None)[0]
    assert (outcome.state, outcome.step) == ("succeeded", NUM_STEPS)
    return path


@pytest.mark.parametrize(
    "looks", [pytest.param((0, 5, 11, 18), id="some"), pytest.param((3, 8, 15, 21), id="more", marks=pytest.mark.slow)]
)
def test_a_run_stopped_at_any_look_ends_as_if_it_had_not_been(
    rank_pools: RankPools, straight: Path, tmp_path: Path, looks: tuple[int, ...]
):
    """The looks: before the first step, in each step, and before each batch of an evaluation, such as look 5."""
    expected = list_figures(read_curve(straight, 1))
    weights = (RunDirectory(straight).model / "model.safetensors").read_bytes()
    stopped_at: set[int | None] = set()
    for num_looks in looks:
        path = tmp_path / str(num_looks)
        first: Outcome = rank_pools.of(2).run(run_attempt, path, 1, resolve_job(), num_looks)[0]
        if first.state == "stopped":
            assert first.reason is EndReason.STOP_REQUESTED
            stopped_at.add(first.step)
        if num_looks == 5:
            assert (first.step, read_curve(path, 1).evaluations) == (4, [])
        second: Outcome = rank_pools.of(2).run(run_attempt, path, 2, resolve_job(), None)[0]
        assert second.state == "succeeded"
        assert list_figures(read_curve(path, 2)) == expected
        assert (RunDirectory(path).model / "model.safetensors").read_bytes() == weights
    assert (0 in stopped_at) == (0 in looks)
    assert len(stopped_at) >= 3


def test_a_finished_run_is_not_trained_again(rank_pools: RankPools, straight: Path, tmp_path: Path):
    shutil.copytree(straight, tmp_path, dirs_exist_ok=True)
    (RunDirectory(tmp_path).model / "model.safetensors").unlink()
    outcome: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 2, resolve_job(), None)[0]
    assert (outcome.state, outcome.reason, outcome.step) == ("succeeded", EndReason.COMPLETED, NUM_STEPS)
    assert outcome.metrics["auc"] == read_curve(tmp_path, 1).evaluations[-1].auc
    assert read_curve(tmp_path, 2).steps[-1].step == NUM_STEPS
    assert (RunDirectory(tmp_path).model / "model.safetensors").exists()
    # Nobody has asked for them.
    assert not RunDirectory(straight).scores.path.exists()


@pytest.mark.slow
def test_a_run_that_had_reached_its_target_goes_straight_to_its_model(rank_pools: RankPools, tmp_path: Path):
    job = resolve_job(run={"eval_every_fraction": 0.25, "target_auc": 0.501, "epochs": 3})
    first: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 1, job, None)[0]
    second: Outcome = rank_pools.of(2).run(run_attempt, tmp_path, 2, job, None)[0]
    assert first.reason is second.reason is EndReason.TARGET_REACHED
    assert first.step == second.step


def test_a_run_continues_with_other_ranks_and_another_plan(rank_pools: RankPools, straight: Path, tmp_path: Path):
    rank_pools.of(2).run(run_attempt, tmp_path, 1, resolve_job(sharding={"plan": "row_wise"}), 8)
    job = resolve_job(resources={"workers_per_node": 1})
    outcome: Outcome = rank_pools.of(1).run(run_attempt, tmp_path, 2, job, None)[0]
    assert outcome.state == "succeeded"
    expected, found = (read_curve(straight, 1), read_curve(tmp_path, 2))
    assert [step.step for step in found.steps] == [step.step for step in expected.steps]
    assert [step.loss for step in found.steps] == pytest.approx([step.loss for step in expected.steps], rel=1e-5)
    expected_losses = [evaluation.log_loss for evaluation in expected.evaluations]
    assert [evaluation.log_loss for evaluation in found.evaluations] == pytest.approx(expected_losses, rel=1e-5)


def test_tables_are_gone_from_memory_before_the_model_is_written(rank_pools: RankPools, tmp_path: Path):
    def run_and_look(ranks: Ranks) -> list[int]:
        # The ranks are those of other tests too, which may have left cycles.
        gc.collect()
        num_left: list[int] = []
        write = dlrm.train.run.export_model

        def look_and_write(*arguments: Any) -> None:
            num_left.append(sum(isinstance(thing, ShardedTables) for thing in gc.get_objects()))
            write(*arguments)

        dlrm.train.run.export_model = look_and_write
        try:
            run_attempt(ranks, tmp_path, 1, resolve_job(), None)
        finally:
            dlrm.train.run.export_model = write
        return num_left

    assert rank_pools.of(2).run(run_and_look) == [[0], []]
