"""The comparison of a run's model with simple models: a program that the run starts, and what the run says of it."""

from pathlib import Path

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.data.open import open_data
from dlrm.record import EventReport, ProgressReport, RunDirectory, SpoolReader, find_yardsticks, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.context import RunContext
from dlrm.train.finishing import Finishing, list_parts
from dlrm.train.quality import compare_with_yardsticks
from dlrm.train.stop_request import StopRequest
from sharding.comm.process_groups import Ranks
from tests.dlrm.data.packed_files import ONE_ID, random_rows, write_packed
from tests.dlrm.train.test_run import list_events, resolve_job, run_attempt
from tests.rank_pool.pool import RankPools

JOB = resolve(
    JobConfig.model_validate(
        {
            "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 200}},
            "run": {"yardsticks": "logistic"},
        }
    )
)
METRICS = {"auc": 0.55, "auc_standard_error": 0.01, "log_loss": 0.6, "constant_log_loss": 0.56, "num_rows": 2000.0}


def make_context(ranks: Ranks, path: Path, *, is_stop_requested: bool = False) -> RunContext:
    directory = RunDirectory(path)
    directory.attempt(1).create()
    stop = StopRequest()
    stop.is_requested = is_stop_requested
    attempt = directory.attempt(1)
    return RunContext(JOB, directory, attempt.profile, ranks, Reporter(attempt, ranks.rank), stop)


def compare(ranks: Ranks, path: Path, is_stop_requested: bool) -> dict[str, float | None]:
    context = make_context(ranks, path, is_stop_requested=is_stop_requested)
    return compare_with_yardsticks(context, METRICS, Finishing(context.reporter, list_parts(JOB.job)))


def read_events(path: Path) -> dict[str, EventReport]:
    return {event.name: event for event in list_events(path)}


def test_the_metrics_of_a_run_get_those_of_logistic_regression(rank_pools: RankPools, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(JOB.model_dump_json())
    merged = rank_pools.of(1).run(compare, tmp_path, False)[0]
    assert {name: merged[name] for name in METRICS} == METRICS
    [result] = find_yardsticks(merged)
    dataset = open_data(JOB.job.data, None, None)
    assert (result.num_train_rows, result.num_rows) == (dataset.train.num_rows, dataset.evaluation.num_rows)
    assert result.auc is not None
    assert result.auc > 0.65
    events = read_events(tmp_path)
    assert f"{result.auc:.4f}" in events["yardstick"].message
    assert f"{result.auc:.4f}" in events["worse_than_logistic_regression"].message
    assert "0.6000" in events["worse_than_constant"].message
    assert "yardsticks_failed" not in events
    [told] = [
        parse_report(line) for line in SpoolReader(RunDirectory(tmp_path).attempt(1).spool_file(0, "events")).read(1)
    ]
    assert isinstance(told, ProgressReport)
    assert (told.phase, told.message) == (
        "finishing",
        "comparing the model with logistic regression; then writing the model",
    )


def test_a_comparison_that_fails_changes_nothing_and_is_reported(rank_pools: RankPools, tmp_path: Path) -> None:
    # Without its document the program cannot know the rows.
    assert rank_pools.of(1).run(compare, tmp_path, False)[0] == METRICS
    assert "exit code 1" in read_events(tmp_path)["yardsticks_failed"].message


def test_a_stop_request_ends_the_comparison(rank_pools: RankPools, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(JOB.model_dump_json())
    assert rank_pools.of(1).run(compare, tmp_path, True)[0] == METRICS
    assert "stopped on request" in read_events(tmp_path)["yardsticks_failed"].message


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_run_on_labels_that_are_noise_warns_while_it_trains_and_at_its_end(rank_pools: RankPools, tmp_path: Path):
    packed = tmp_path / "rows"
    packed.mkdir()
    features = [ONE_ID]
    write_packed(packed, random_rows(10_000, features), random_rows(10_000, features, seed=1), features)
    data = {"format": "packed", "train": [str(packed)]}
    run = {"epochs": 1, "eval_every_fraction": 0.25, "yardsticks": "none", "blend": "none"}
    job = resolve_job(data=data, batch={"global_size": 256}, run=run, resources={"workers_per_node": 1})
    (tmp_path / "spec.json").write_text(job.model_dump_json())
    outcome = rank_pools.of(1).run(run_attempt, tmp_path, 1, job, None)[0]
    assert outcome.state == "succeeded", outcome.message
    assert outcome.metrics["auc"] == pytest.approx(0.5, abs=0.02)
    in_training, at_end = (event for event in list_events(tmp_path) if event.name == "learns_nothing")
    # Evaluations are after 10, 20, 30 and 40 steps.
    assert in_training.details["step"] == 30
    assert f"{outcome.metrics['auc']:.4f}" in at_end.message
