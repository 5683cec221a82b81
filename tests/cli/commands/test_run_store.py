"""Runs that are kept in a bucket, by the command line: --run-store, `dlrm resume URI`, `dlrm upload`, models."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import DataConfig, ModelConfig, parse_job, resolve
from dlrm.record import EndReason, Outcome, RunDirectory
from tests.bucket.server import WRITES, Bucket
from tests.cli.commands.test_train import DOCUMENT, write_job
from tests.cli.conftest import Command, run
from tests.dlrm.run_store.runs import RUN, make_run, write_checkpoint

STORE = "s3://bucket/runs"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, with places for state and prepared rows of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))
    return tmp_path


def make_ended_run(path: Path) -> RunDirectory:
    """Make the directory of a run that has succeeded, with its model, and that is kept in the bucket."""
    directory = make_run(path)
    directory.spec.write_text(resolve(parse_job(DOCUMENT)).model_dump_json())
    outcome = Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18, metrics={"auc": 0.75})
    outcome.write_first(directory.attempt(1).outcome)
    directory.model.mkdir()
    sections = {"model": ModelConfig(), "data": DataConfig(train=["/day.tsv"])}
    config: dict[str, Any] = {name: section.model_dump(mode="json") for name, section in sections.items()}
    (directory.model / "config.json").write_text(json.dumps({**config, "num_dense": 13, "table_rows": {}}))
    (directory.model / "manifest.json").write_text('{"format": 1, "files": {}}')
    return directory


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://other/runs", "s3://other: the bucket does not exist (valid: a bucket that exists"),
        ("http://bucket/runs", "http://bucket/runs: http:// is not supported (valid: s3:// or gs://"),
        pytest.param("runs", "runs: is no URI of a store (valid: s3://bucket/prefix", marks=pytest.mark.slow),
        (STORE, f"{RUN}: there is a run of this name already (valid: another --run-directory, or this run with `dlrm"),
    ],
)
@pytest.mark.parametrize(
    "is_option", [pytest.param(True, id="option"), pytest.param(False, marks=pytest.mark.slow, id="environment")]
)
def test_an_unusable_store_is_one_line_and_leaves_no_run(
    dlrm: Command,
    bucket: Bucket,
    here: Path,
    store: str,
    message: str,
    is_option: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket.write("runs/run/spec.json", b"{}")
    if not is_option:
        monkeypatch.setenv("DLRM_RUN_STORE", store)
    options = ["--run-store", store] if is_option else []
    ended = dlrm("train", str(write_job(here)), *options, "--run-directory", "run")
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert not (here / "run").exists()


@pytest.mark.slow
def test_missing_credentials_and_permission_are_told_with_the_fix(
    dlrm: Command, bucket: Bucket, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("train", str(write_job(here)), "--run-store", STORE, "--run-directory", "run")
    bucket.proxy.forbidden = WRITES
    ended = dlrm(*arguments)
    assert (ended.code, "the credentials do not permit it" in ended.err) == (2, True)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    ended = dlrm(*arguments)
    assert (ended.code, "set AWS_ACCESS_KEY_ID" in ended.err) == (2, True)


@pytest.mark.slow
def test_an_upload_that_was_left_is_finished_and_the_run_found_again(dlrm: Command, bucket: Bucket, here: Path) -> None:
    directory = make_ended_run(here / "runs" / "run")
    write_checkpoint(directory, 18)
    ended = dlrm("upload", "runs/run")
    assert (ended.code, f"all is in {RUN}" in ended.err) == (0, True), ended.err
    assert "runs/run/checkpoints/step-00000018/COMPLETE" in bucket.list_names()
    assert bucket.list_names("runs/run/lease") == []
    shutil.rmtree(directory.path)
    ended = dlrm("resume", RUN, "--json")
    assert (ended.code, "the run has already succeeded" in ended.err) == (0, True), ended.err
    assert json.loads(ended.out)["model"] == str(directory.model)
    assert (directory.checkpoint(18) / "COMPLETE").exists()


@pytest.mark.parametrize("is_attempt_later", [True, False])
@pytest.mark.slow
def test_an_upload_of_a_run_that_has_gone_on_elsewhere_is_refused(
    dlrm: Command, bucket: Bucket, here: Path, is_attempt_later: bool
) -> None:
    directory = make_ended_run(here / "runs" / "run")
    write_checkpoint(directory, 18)
    elsewhere = make_run(here / "elsewhere" / "run")
    write_checkpoint(elsewhere, 18 if is_attempt_later else 90)
    if is_attempt_later:
        elsewhere.attempt(2).create()
        elsewhere.attempt(2).rank_log(0).write_text("a line")
    assert dlrm("upload", "elsewhere/run").code == 0
    before = {name: bucket.read(name) for name in bucket.list_names()}
    ended = dlrm("upload", "runs/run")
    fault = "attempt 2 of the run is there" if is_attempt_later else "there is a newer checkpoint than here, of step 90"
    assert (ended.code, fault in ended.err, f"dlrm resume {RUN}" in ended.err) == (2, True, True), ended.err
    assert {name: bucket.read(name) for name in bucket.list_names()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume", f"{STORE}/none"], f"{STORE}/none: there is no run (valid: s3://bucket/prefix/RUN"),
        (["resume", "s3://bucket"], "names no run (valid: s3://bucket/prefix/RUN)"),
        (["resume", RUN, "--run-store", STORE], "--run-store: not valid with the URI of a run"),
        (["resume", "run", "--run-store", "s3://bucket/others"], f"run is kept in {STORE} (valid: that)"),
        *(
            (["resume", "run", "--run-store", store], f"{store}: is no URI of a store")
            for store in ("bucket/runs", "s3://", "s3://bucket/../../x")
        ),
        (["resume", "damaged"], "run-store.json is damaged"),
        (["upload", "none"], "is kept in no bucket (valid: the directory of a run that was trained with"),
        pytest.param(
            ["upload", "empty"],
            "is kept in no bucket (valid: the directory of a run that was trained with",
            marks=pytest.mark.slow,
        ),
        (["evaluate", f"{STORE}/none/model"], f"{STORE}/none/model: has no complete model"),
        pytest.param(
            ["predict", f"{STORE}/none/model", "x.csv"],
            f"{STORE}/none/model: has no complete model",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["export", f"{STORE}/none", "-o", "model"], f"{STORE}/none: there is no run", marks=pytest.mark.slow
        ),
    ],
)
def test_what_is_not_in_the_bucket_is_told(
    dlrm: Command, bucket: Bucket, here: Path, arguments: list[str], message: str
) -> None:
    make_run(here / "run")
    make_run(here / "damaged").run_store.write_text("{}")
    (here / "empty").mkdir()
    ended = dlrm(*arguments)
    assert (ended.code, message in ended.err) == (2, True), ended.err


@pytest.mark.slow
def test_a_manifest_of_something_else_is_told(dlrm: Command, bucket: Bucket, here: Path) -> None:
    bucket.write("runs/other/model/manifest.json", b'{"name": "an app"}')
    ended = dlrm("predict", f"{STORE}/other/model", "x.csv")
    assert "manifest.json: is no manifest of a model" in ended.err


def test_secrets_in_the_name_of_a_store_become_arguments_of_no_process(
    dlrm: Command, bucket: Bucket, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLRM_RUN_STORE", "s3://key:secret@bucket/runs")
    monkeypatch.setattr("cli.local.run_store.run_program", pytest.fail)
    ended = dlrm("train", str(write_job(here)), "--run-directory", "run")
    assert (ended.code, "contains credentials" in ended.err, "secret" in ended.err) == (2, True, False)


def test_a_run_resumed_in_its_directory_takes_what_is_newer_in_its_bucket(
    dlrm: Command, bucket: Bucket, here: Path
) -> None:
    make_ended_run(here / "elsewhere" / "run").attempt(2).create()
    Outcome(state="succeeded", reason=EndReason.COMPLETED, step=18).write_first(
        RunDirectory(here / "elsewhere" / "run").attempt(2).outcome
    )
    assert dlrm("upload", "elsewhere/run").code == 0
    stale = make_run(here / "run")
    stale.spec.write_bytes((here / "elsewhere" / "run" / "spec.json").read_bytes())
    ended = dlrm("resume", "run")
    assert (ended.code, "the run has already succeeded" in ended.err) == (0, True), ended.err


@pytest.mark.slow
def test_a_model_in_a_bucket_to_start_from_must_be_there_and_fit(dlrm: Command, bucket: Bucket, here: Path) -> None:
    job = write_job(here, run={"warm_start": {"from": RUN}})
    ended = dlrm("train", str(job), "--run-directory", "new")
    assert (ended.code, f"run.warm_start.from: {RUN}: has no complete model" in ended.err) == (2, True)
    make_ended_run(here / "runs" / "run")
    assert dlrm("upload", "runs/run").code == 0
    ended = dlrm("train", str(job), "--run-directory", "new")
    assert (ended.code, "data.format: is synthetic, but the model" in ended.err) == (2, True)
    assert not (here / "new").exists()


@pytest.mark.slow
def test_a_run_is_trained_lost_and_used_from_its_bucket(bucket: Bucket, here: Path) -> None:
    trained = run("train", write_job(here, name="small"), "--run-store", STORE, "--run-directory", "run", "--json")
    assert trained.returncode == 0, trained.stderr
    model, metrics = f"{STORE}/run/model", json.loads(trained.stdout.splitlines()[-1])
    weights = (here / "run" / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(here / "run")

    evaluated = run("evaluate", model, "--json")
    assert json.loads(evaluated.stdout.splitlines()[-1])["auc"] == pytest.approx(metrics["auc"], abs=1e-6)
    exported = run("export", RUN, "-o", here / "exported")
    assert exported.returncode == 0, exported.stderr
    assert (here / "exported" / "model.safetensors").read_bytes() == weights

    again = write_job(here, run={"warm_start": {"from": RUN, "optimizer_state": True}, "yardsticks": "none"})
    warm = run("train", again, "--run-directory", "warm", "--json")
    assert warm.returncode == 0, warm.stderr
    assert json.loads(warm.stdout.splitlines()[-1])["auc"] > metrics["auc"] - 0.01
    events = (here / "warm" / "attempt-1" / "spool" / "rank-0.events.jsonl").read_text()
    assert "the optimizers continue with their state" in events

    resumed = run("resume", RUN)
    assert (resumed.returncode, "already succeeded" in resumed.stderr) == (0, True), resumed.stderr
    assert (here / "runs" / "run" / "model" / "model.safetensors").read_bytes() == weights
