"""Runs that are kept in a bucket, on one machine: nothing is lost with the machine."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlrm.record import (
    UPLOADED,
    UPLOADS_LEFT,
    EndReason,
    EventReport,
    RunDirectory,
    find_newest_checkpoint,
)
from tests.bucket.server import Bucket
from tests.e2e.launching import ONE_RANK, ended, processes_of, reports_of, start, start_attempt
from tests.patience import wait_until

STORE = "s3://bucket/runs"
RUN = {"epochs": 3, "eval_every_fraction": 0.5, "checkpoint_every_seconds": 0.4, "yardsticks": "none"}


def list_complete(bucket: Bucket, run: str = "run") -> list[int]:
    """List the steps of the complete checkpoints in the bucket."""
    names = bucket.list_names(f"runs/{run}/checkpoints")
    return sorted(int(name.split("/")[-2].removeprefix("step-")) for name in names if name.endswith("/COMPLETE"))


def list_events(directory: RunDirectory, attempt: int = 1) -> list[str]:
    return [report.name for report in reports_of(directory, "events", attempt) if isinstance(report, EventReport)]


def read_weights(directory: RunDirectory) -> bytes:
    return (directory.model / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_all_of_a_run_is_in_its_bucket_when_it_ends(bucket: Bucket, tmp_path: Path):
    directory, process = start(tmp_path / "run", run={**RUN, "epochs": 1}, resources=ONE_RANK, store=STORE)
    code, outcome = ended(directory, process)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    newest = find_newest_checkpoint(directory.checkpoints)
    assert newest is not None
    assert list_complete(bucket)[-1] == newest.step
    assert bucket.read("runs/run/model/model.safetensors") == read_weights(directory)
    names = set(bucket.list_names("runs/run"))
    kept = {"spec.json", "attempt-1/outcome.json", "attempt-1/logs/rank-0.log", "attempt-1/spool/rank-0.events.jsonl"}
    assert {f"runs/run/{name}" for name in kept} <= names
    assert not [name for name in names if "lease" in name]
    assert UPLOADED in list_events(directory)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_in_an_empty_directory_to_the_same_model(bucket: Bucket, tmp_path: Path):
    alone, process = start(tmp_path / "alone", run=RUN)
    assert ended(alone, process)[0] == 0
    directory, process = start(tmp_path / "run", run=RUN, store=STORE)
    wait_until(lambda: list_complete(bucket), process)
    process.kill()
    process.wait()
    wait_until(lambda: processes_of(directory) == [])
    kept = list_complete(bucket)[-1]
    shutil.rmtree(directory.path)
    directory.path.mkdir()
    process = start_attempt(directory, 2, "--run-store", STORE)
    code, outcome = ended(directory, process, attempt=2)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    resumed = [r for r in reports_of(directory, "events", 2) if isinstance(r, EventReport) and r.name == "resumed"]
    assert resumed[0].details["step"] == kept
    assert read_weights(directory) == read_weights(alone)


@pytest.mark.slow
def test_what_could_not_be_uploaded_in_time_is_told_and_is_uploaded_later(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DLRM_UPLOAD_WAIT_SECONDS", "1")
    directory, process = start(tmp_path / "run", run={**RUN, "keep_checkpoints": 1}, store=STORE)
    wait_until(lambda: reports_of(directory, "metrics"), process)
    bucket.proxy.state = "cut"
    before = list_complete(bucket)
    code, outcome = ended(directory, process)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    events = [report for report in reports_of(directory, "events") if isinstance(report, EventReport)]
    told = [event.message for event in events if event.name == UPLOADS_LEFT]
    assert len(told) == 1
    assert f"`dlrm upload {directory.path}` finishes it" in told[0]
    assert outcome.step not in before
    bucket.proxy.state = "well"
    command = [sys.executable, "-m", "dlrm.programs.run_store", "upload", str(directory.path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert list_complete(bucket)[-1] == outcome.step
    assert bucket.read("runs/run/model/model.safetensors") == read_weights(directory)


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://other/runs", "s3://other/runs"),
        pytest.param("s3://key:secret@bucket/runs", "contains credentials", marks=pytest.mark.slow),
    ],
)
def test_a_store_that_cannot_be_used_is_told_before_anything_is_trained(
    bucket: Bucket, tmp_path: Path, store: str, message: str
):
    directory, process = start(tmp_path / "run", run=RUN, store=store)
    code, outcome = ended(directory, process)
    assert (code, outcome.reason) == (64, EndReason.BAD_INPUT)
    assert message in outcome.message
    assert "secret" not in outcome.message
    assert not directory.attempt(1).spool_file(0, "metrics").exists()


@pytest.mark.slow
def test_a_second_launch_of_the_same_run_elsewhere_is_refused(bucket: Bucket, tmp_path: Path):
    directory, process = start(tmp_path / "a" / "run", run={**RUN, "epochs": 1000}, resources=ONE_RANK, store=STORE)
    wait_until(lambda: list_complete(bucket), process)
    other, second = start(tmp_path / "b" / "run", run=RUN, resources=ONE_RANK, store=STORE)
    code, outcome = ended(other, second)
    assert (code, outcome.state, outcome.reason) == (1, "failed", EndReason.RUN_IN_USE)
    assert "s3://bucket/runs/run is in use by process" in outcome.message
    assert "since" in outcome.message
    process.send_signal(signal.SIGTERM)
    code, outcome = ended(directory, process)
    assert (code, outcome.state) == (75, "stopped")
    assert list_complete(bucket)[-1] == outcome.step
