"""`dlrm resume`: what a run goes on with, and what is refused before anything is written."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.local.errors import CommandError
from cli.local.run_directory import create_next_attempt
from cli.local.run_documents import change_job
from dlrm.config import DataFacts, JobConfig, ResolvedJob, parse_job, resolve
from dlrm.record import EndReason, Outcome, RunDirectory, hold_run_lock
from tests.cli.conftest import Command

DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 50}},
    "model": {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "batch": {"global_size": 1024},
}
OPEN = {key: value for key, value in DOCUMENT.items() if key != "batch"}
PRESET = {**DOCUMENT, "preset": "large_batch", "batch": {}}


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


CHANGES = {"batch": {"global_size": 2048}, "run": {"seed": 3, "epochs": 2, "checkpoint_every_seconds": 5}}
TWO_SIZES = DOCUMENT | {
    "batch": {"global_size": 96, "schedule": [{"until_fraction": 0.5, "global_size": 36}]},
    "resources": {"workers_per_node": 4},
}
NOT_FOR_A_RUN = [
    "RUN: preset: fills what a document leaves out",
    "valid: the same command without a preset, or with the job document",
]


@pytest.mark.parametrize(
    ("document", "changed", "options", "words"),
    [
        (
            DOCUMENT,
            DOCUMENT | CHANGES,
            [],
            [
                "JOB: batch.global_size is 2048, but was 1024",
                "JOB: run.seed is 3, but was 0",
                "JOB: run.epochs is 2.0, but was 1.0",
                "it is a different run from RUN: train it with `dlrm train`",
            ],
        ),
        (DOCUMENT, None, ["--set", "batch.global_size=2048"], ["--set: batch.global_size is 2048, but was 1024"]),
        (DOCUMENT, None, ["--preset", "large_batch"], NOT_FOR_A_RUN),
        (DOCUMENT, None, ["--set", "preset=large_batch"], NOT_FOR_A_RUN),
        (DOCUMENT, None, ["--run-directory", "elsewhere"], ["stays in its own directory"]),
        (
            DOCUMENT,
            OPEN | {"resources": {"workers_per_node": 3}},
            [],
            [
                "JOB: resources.workers_per_node: 3 ranks do not divide the batch.global_size of 1,024 with which the "
                "run began (valid: 1, 2 or 4 ranks in all)"
            ],
        ),
        (
            TWO_SIZES,
            None,
            ["--set", "resources.workers_per_node=8"],
            [
                "8 ranks do not divide the batch.schedule.0.global_size of 36",
                "(valid: 1, 2, 3, 4, 6 or 12 ranks in all)",
            ],
        ),
    ],
)
def test_what_would_make_it_another_run_is_named_and_nothing_is_written(
    dlrm: Command,
    directory: RunDirectory,
    tmp_path: Path,
    document: dict[str, Any],
    changed: dict[str, Any] | None,
    options: list[str],
    words: list[str],
) -> None:
    directory.spec.write_text(resolve(JobConfig.model_validate(document)).model_dump_json())
    job = tmp_path / "job.json"
    job.write_text(json.dumps(changed))
    before = (left_in(directory), directory.spec.read_bytes())
    ended = dlrm("resume", str(directory.path), *([] if changed is None else [str(job)]), *options)
    assert ended.code == 2
    for expected in words:
        assert expected.replace("JOB", str(job)).replace("RUN", str(directory.path)) in ended.err
    assert "checkpoint_every_seconds" not in ended.err
    assert (left_in(directory), directory.spec.read_bytes()) == before


def test_the_former_spelling_names_the_new_one_and_works(
    dlrm: Command, directory: RunDirectory, tmp_path: Path
) -> None:
    job = write_job(tmp_path / "job.json", batch={"global_size": 2048})
    ended = dlrm("train", str(job), "--resume", str(directory.path))
    assert f"note: `dlrm train --resume RUN` is now `dlrm resume {directory.path} {job}`" in ended.err
    assert (ended.code, f"{job}: batch.global_size is 2048, but was 1024" in ended.err) == (2, True)


@pytest.mark.parametrize("command", [("resume",), ("train", "--resume")])
def test_a_run_that_has_succeeded_says_so_and_answers_with_its_result(
    dlrm: Command, directory: RunDirectory, command: tuple[str, ...]
) -> None:
    end(directory, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18, metrics={"auc": 0.75}))
    directory.model.mkdir()
    ended = dlrm(*command, str(directory.path), "--json")
    assert ended.code == 0
    assert f"{directory.path}: the run has already succeeded; nothing is left to do" in ended.err
    result = json.loads(ended.out)
    assert (result["state"], result["auc"], result["model"]) == ("succeeded", 0.75, str(directory.model))
    profiled = dlrm(*command, str(directory.path), "--profile")
    assert "nothing is left to do; no profile, because no step is run" in profiled.err
    assert f"{directory.model}/MODEL_CARD.md" in profiled.out
    assert not directory.attempt(2).path.exists()


def test_a_followed_run_that_has_succeeded_says_what_trains_on_newer_files(
    dlrm: Command, directory: RunDirectory
) -> None:
    schema = {"categorical": [{"name": "site"}]}
    data = {"train": ["clicks/*.csv"], "format": "csv", "schema": schema, "vocabulary": {"hash_size": 50}}
    document = {**DOCUMENT, "data": {**data, "follow": {"idle_minutes": 5}}}
    directory.spec.write_text(resolve(parse_job(document)).model_dump_json())
    end(directory, Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18, metrics={"auc": 0.75}))
    directory.model.mkdir()
    ended = dlrm("resume", str(directory.path))
    assert ended.code == 0
    said = " ".join(ended.err.split())
    assert f'run.warm_start = {{from = "{directory.path}", optimizer_state = true}}' in said
    assert "longer data.follow.idle_minutes, or null" in said


def test_a_run_that_another_process_works_on_is_left_alone(dlrm: Command, directory: RunDirectory) -> None:
    with hold_run_lock(directory):
        ended = dlrm("resume", str(directory.path))
    assert ended.code == 1
    assert f"{directory.path} is in use by process {os.getpid()}: wait for it to end, or stop it" in ended.err
    assert not directory.attempt(2).path.exists()


def test_what_is_no_run_is_refused(dlrm: Command, directory: RunDirectory, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        ended = dlrm("resume", str(path))
        assert ended.code == 2
        assert f"{path}: not the directory of a run: it contains no spec.json" in ended.err
    directory.spec.write_text("{}")
    ended = dlrm("resume", str(directory.path))
    assert (ended.code, f"{directory.spec}: job: required, but missing" in ended.err) == (2, True)


def test_train_without_anything_and_in_the_directory_of_a_run_hints_at_resuming(
    dlrm: Command, directory: RunDirectory, tmp_path: Path
) -> None:
    ended = dlrm("train")
    assert (ended.code, "nothing to train (valid: a job document or data files" in ended.err) == (2, True)
    ended = dlrm("train", str(write_job(tmp_path / "job.json")), "--run-directory", str(directory.path))
    assert ended.code == 2
    assert f"name another directory with --run-directory, or resume this run: dlrm resume {directory.path}" in ended.err


def test_settings_that_change_no_result_are_kept_in_the_next_attempt(directory: RunDirectory) -> None:
    started = create_next_attempt(directory.path, None, ["run.checkpoint_every_seconds=5", "resources.memory=2GiB"])
    changed = ResolvedJob.model_validate_json(started.attempt.spec.read_bytes())
    assert changed.job.run.checkpoint_every_seconds == 5
    assert changed.job.resources.memory == 2 * 2**30
    assert changed.job.batch.global_size == 1024
    directory.spec.write_text(resolve(JobConfig.model_validate(TWO_SIZES)).model_dump_json())
    started = create_next_attempt(directory.path, None, ["resources.workers_per_node=6"])
    assert started.resolved.job.resources.world_size == 6


def test_a_preset_is_refused_for_the_plan_of_a_run(dlrm: Command, directory: RunDirectory) -> None:
    ended = dlrm("plan", str(directory.path), "--preset", "large_batch")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert f"{directory.path}: preset: fills what a document leaves out" in ended.err


def test_a_preset_beside_the_document_that_a_run_began_with_resumes_it(directory: RunDirectory, tmp_path: Path) -> None:
    decided = resolve(parse_job(PRESET), facts=DataFacts(num_train_rows=18_000))
    directory.spec.write_text(decided.model_dump_json())
    job = write_job(tmp_path / "job.json", batch={})
    resumed = create_next_attempt(directory.path, job, ["preset=large_batch"]).resolved
    assert (resumed.job, resumed.decisions) == (decided.job, decided.decisions)
    with pytest.raises(CommandError, match="train it with `dlrm train`"):
        create_next_attempt(directory.path, job)


def test_what_a_setting_changes_is_no_value_of_the_preset_any_more(directory: RunDirectory) -> None:
    job = resolve(parse_job(PRESET), facts=DataFacts(num_train_rows=18_000)).job
    same = f"table_optimizer.learning_rate={job.table_optimizer.learning_rate}"
    settings = ["batch.global_size=1024", "dense_optimizer.learning_rate=0.5", same]
    changed = change_job(job, settings, directory.path)
    gone = {"batch.global_size", "dense_optimizer.learning_rate", "table_optimizer.learning_rate"}
    assert changed.filled_by_preset == [field for field in job.filled_by_preset or () if field not in gone]
    for record in (job.filled_by_preset, None):
        recorded = job.model_copy(update={"filled_by_preset": record})
        assert change_job(recorded, ["resources.memory=2GiB"], directory.path).filled_by_preset == record


def test_set_before_anything_is_decided_leaves_it_open(directory: RunDirectory) -> None:
    rows = directory.path / "rows.csv"
    rows.write_text("label,c\n0,a\n1,b\n")
    data = {"train": [str(rows)], "format": "csv", "schema": {"categorical": [{"name": "c"}]}}
    directory.spec.write_text(resolve(parse_job({"data": data})).model_dump_json())
    started = create_next_attempt(directory.path, None, ["resources.memory=2GiB"])
    assert started.resolved.asked is not None
    assert started.resolved.asked.batch.global_size == "auto"
    assert started.resolved.asked.resources.memory == 2 * 2**30
