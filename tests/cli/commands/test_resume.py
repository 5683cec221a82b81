"""`dlrm train --resume`: what it goes on with, and what it refuses before anything is written."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.local.errors import CommandError
from cli.local.run_directory import create_next_attempt
from cli.local.run_documents import change_job
from dlrm.config import DataFacts, JobConfig, ResolvedJob, parse_job, resolve
from dlrm.record import EndReason, Outcome, RunDirectory, hold_run_lock
from tests.cli.conftest import Ended

Command = Callable[..., Ended]
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 1024},
}


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Of a run that was stopped in its first attempt."""
    directory = RunDirectory(tmp_path / "run")
    directory.attempt(1).create()
    directory.spec.write_text(resolve(JobConfig.model_validate(DOCUMENT)).model_dump_json())
    end(directory, Outcome(state="stopped", reason=EndReason.STOP_REQUESTED))
    return directory


def end(directory: RunDirectory, outcome: Outcome) -> None:
    directory.attempt(1).outcome.write_text(outcome.model_dump_json())


def write_job(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def left_in(directory: RunDirectory) -> list[str]:
    return sorted(path.name for path in directory.path.iterdir())


def test_settings_that_make_it_another_run_are_each_named_and_nothing_is_written(
    dlrm: Command, directory: RunDirectory, tmp_path: Path
) -> None:
    changes = {"batch": {"global_size": 2048}, "run": {"seed": 3, "epochs": 2, "checkpoint_every_seconds": 5}}
    job = write_job(tmp_path / "job.json", **changes)
    before = (left_in(directory), directory.spec.read_bytes())
    ended = dlrm("train", str(job), "--resume", str(directory.path))
    assert ended.code == 2
    assert f"{job}: batch.global_size is 2048, but was 1024" in ended.err
    assert f"{job}: run.seed is 3, but was 0" in ended.err
    assert f"{job}: run.epochs is 2.0, but was 1.0" in ended.err
    assert "checkpoint_every_seconds" not in ended.err
    assert (left_in(directory), directory.spec.read_bytes()) == before


def test_a_run_that_has_succeeded_says_so_and_answers_with_its_result(dlrm: Command, directory: RunDirectory) -> None:
    end(directory, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18, metrics={"auc": 0.75}))
    directory.model.mkdir()
    ended = dlrm("train", "--resume", str(directory.path), "--json")
    assert ended.code == 0
    assert f"{directory.path}: the run has already succeeded; nothing is left to do" in ended.err
    result = json.loads(ended.out)
    assert (result["state"], result["auc"], result["model"]) == ("succeeded", 0.75, str(directory.model))
    assert not directory.attempt(2).path.exists()


def test_a_run_that_has_succeeded_says_that_it_leaves_no_profile(dlrm: Command, directory: RunDirectory) -> None:
    end(directory, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18))
    directory.model.mkdir()
    ended = dlrm("train", "--resume", str(directory.path), "--profile")
    assert ended.code == 0
    assert "nothing is left to do; no profile, because no step is run" in ended.err


def test_a_run_that_another_process_works_on_is_left_alone(dlrm: Command, directory: RunDirectory) -> None:
    with hold_run_lock(directory):
        ended = dlrm("train", "--resume", str(directory.path))
    assert ended.code == 1
    assert f"{directory.path} is in use by process {os.getpid()}: wait for it to end, or stop it" in ended.err
    assert not directory.attempt(2).path.exists()


def test_a_directory_that_holds_no_run_is_refused(dlrm: Command, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        ended = dlrm("train", "--resume", str(path))
        assert ended.code == 2
        assert f"{path}: not the directory of a run: it contains no spec.json" in ended.err


def test_a_spec_that_is_damaged_names_its_field(dlrm: Command, directory: RunDirectory) -> None:
    directory.spec.write_text("{}")
    ended = dlrm("train", "--resume", str(directory.path))
    assert ended.code == 2
    assert f"{directory.spec}: job: required, but missing" in ended.err


def test_neither_a_job_nor_a_run_is_refused_and_so_are_two_directories(dlrm: Command, directory: RunDirectory) -> None:
    ended = dlrm("train")
    assert (ended.code, "nothing to train (valid: a job document, data files, or --resume" in ended.err) == (2, True)
    ended = dlrm("train", "--resume", str(directory.path), "--run-directory", "elsewhere")
    assert (ended.code, "stays in its own directory" in ended.err) == (2, True)


def test_a_new_run_in_the_directory_of_another_hints_at_going_on(
    dlrm: Command, directory: RunDirectory, tmp_path: Path
) -> None:
    ended = dlrm("train", str(write_job(tmp_path / "job.json")), "--run-directory", str(directory.path))
    assert ended.code == 2
    assert "name another directory with --run-directory, or resume this run with --resume" in ended.err


def test_set_alone_is_a_changed_document_too(dlrm: Command, directory: RunDirectory) -> None:
    ended = dlrm("train", "--resume", str(directory.path), "--set", "batch.global_size=2048")
    assert ended.code == 2
    assert "--set: batch.global_size is 2048, but was 1024" in ended.err
    assert not directory.attempt(2).path.exists()

    started = create_next_attempt(directory.path, None, ["run.checkpoint_every_seconds=5", "resources.memory=2GiB"])
    changed = ResolvedJob.model_validate_json(started.attempt.spec.read_bytes())
    assert changed.job.run.checkpoint_every_seconds == 5
    assert changed.job.resources.memory == 2 * 2**30
    assert changed.job.batch.global_size == 1024


@pytest.mark.parametrize("option", [("--preset", "large_batch"), ("--set", "preset=large_batch")])
@pytest.mark.parametrize("command", [("train", "--resume"), ("plan",)])
def test_a_preset_without_a_document_that_leaves_something_out_is_refused_for_a_run(
    dlrm: Command, directory: RunDirectory, command: tuple[str, ...], option: tuple[str, ...]
) -> None:
    before = left_in(directory)
    ended = dlrm(*command, str(directory.path), *option)
    assert (ended.code, ended.err.count("\n"), left_in(directory)) == (2, 1, before)
    assert f"{directory.path}: preset: fills what a document leaves out" in ended.err
    assert "valid: the same command without a preset, or with the job document" in ended.err


def test_a_preset_beside_the_document_that_a_run_began_with_resumes_it(directory: RunDirectory, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.json", preset="large_batch", batch={})
    asked = parse_job(json.loads(job.read_text()))
    decided = resolve(asked, facts=DataFacts(num_train_rows=18_000))
    directory.spec.write_text(decided.model_dump_json())
    write_job(job, batch={})
    resumed = create_next_attempt(directory.path, job, ["preset=large_batch"]).resolved
    assert (resumed.job, resumed.decisions) == (decided.job, decided.decisions)
    with pytest.raises(CommandError, match="train it without --resume"):
        create_next_attempt(directory.path, job)


def test_what_a_setting_changes_is_no_value_of_the_preset_any_more(directory: RunDirectory) -> None:
    asked = parse_job({**DOCUMENT, "preset": "large_batch", "batch": {}})
    job = resolve(asked, facts=DataFacts(num_train_rows=18_000)).job
    same = f"table_optimizer.learning_rate={job.table_optimizer.learning_rate}"
    settings = ["batch.global_size=1024", "dense_optimizer.learning_rate=0.5", same]
    changed = change_job(job, settings, directory.path)
    gone = {"batch.global_size", "dense_optimizer.learning_rate", "table_optimizer.learning_rate"}
    assert changed.filled_by_preset == [field for field in job.filled_by_preset or () if field not in gone]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_setting_beside_the_values_of_the_preset_leaves_the_record_of_them(
    directory: RunDirectory, *, is_recorded: bool
) -> None:
    asked = parse_job({**DOCUMENT, "preset": "large_batch", "batch": {}})
    job = resolve(asked, facts=DataFacts(num_train_rows=18_000)).job
    if not is_recorded:
        job = job.model_copy(update={"filled_by_preset": None})
    assert change_job(job, ["resources.memory=2GiB"], directory.path).filled_by_preset == job.filled_by_preset


def test_set_before_anything_is_decided_leaves_it_open(directory: RunDirectory) -> None:
    rows = directory.path / "rows.csv"
    rows.write_text("label,c\n0,a\n1,b\n")
    data = {"train": [str(rows)], "format": "csv", "schema": {"categorical": [{"name": "c"}]}}
    directory.spec.write_text(resolve(parse_job({"data": data})).model_dump_json())
    started = create_next_attempt(directory.path, None, ["resources.memory=2GiB"])
    assert started.resolved.asked is not None
    assert started.resolved.asked.batch.global_size == "auto"
    assert started.resolved.asked.resources.memory == 2 * 2**30


def test_ranks_that_do_not_divide_a_decided_batch_are_refused(dlrm: Command, directory: RunDirectory) -> None:
    job = directory.path.parent / "open.json"
    job.write_text(
        json.dumps(
            {key: value for key, value in DOCUMENT.items() if key != "batch"} | {"resources": {"workers_per_node": 3}}
        )
    )
    ended = dlrm("train", str(job), "--resume", str(directory.path))
    assert ended.code == 2
    assert ended.err.splitlines()[0].endswith(
        f"{job}: resources.workers_per_node: 3 ranks do not divide the batch.global_size of 1,024 with which the run "
        "began (valid: 1, 2 or 4 ranks in all)"
    )


def test_ranks_are_named_that_divide_all_sizes_of_the_run(dlrm: Command, directory: RunDirectory) -> None:
    schedule = [{"until_fraction": 0.5, "global_size": 36}]
    document = DOCUMENT | {"batch": {"global_size": 96, "schedule": schedule}, "resources": {"workers_per_node": 4}}
    directory.spec.write_text(resolve(JobConfig.model_validate(document)).model_dump_json())
    ended = dlrm("train", "--resume", str(directory.path), "--set", "resources.workers_per_node=8")
    assert ended.code == 2
    assert "8 ranks do not divide the batch.schedule.0.global_size of 36" in ended.err
    assert "(valid: 1, 2, 3, 4, 6 or 12 ranks in all)" in ended.err
    started = create_next_attempt(directory.path, None, ["resources.workers_per_node=6"])
    assert started.resolved.job.resources.world_size == 6
