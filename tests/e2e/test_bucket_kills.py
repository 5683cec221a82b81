"""Runs in a bucket that are killed, with their machine, while requests fail, and buckets that are out of reach.

DLRM_KILLS_SEED draws other moments.
"""

import hashlib
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dlrm.record import UPLOADED, CheckpointDirectory, EventReport, RunDirectory, StartReport, StepReport
from dlrm.run_store.layout import name_checkpoint, name_content
from tests.bucket.server import Bucket, State
from tests.e2e.launching import ended, processes_of, reports_of, start, start_attempt
from tests.e2e.test_bucket import STORE, list_complete, read_weights
from tests.patience import wait_until

SEED = int(os.environ.get("DLRM_KILLS_SEED", "1"))
NUM_KILLS, FAILING_FRACTION = 20, 0.1
OUTAGE_SECONDS = 30.0
KILLED: dict[str, Any] = {
    "run": {"epochs": 30, "eval_every_fraction": 0.1, "checkpoint_every_seconds": 0.4, "yardsticks": "none"}
}
CUT: dict[str, Any] = {"run": {**KILLED["run"], "epochs": 60}}


def check_newest(bucket: Bucket) -> int:
    """Return the step of the newest complete checkpoint in the bucket, whose files are all what they should be."""
    steps = list_complete(bucket)
    if not steps:
        return 0
    complete = bucket.read(f"runs/run/{name_checkpoint(steps[-1])}/COMPLETE")
    below = f"runs/run/{name_content(steps[-1], complete)}"
    manifest = CheckpointDirectory(Path(below), steps[-1]).parse_manifest(complete)
    for name, file in manifest.files.items():
        assert hashlib.sha256(bucket.read(f"{below}/{name}")).hexdigest() == file.sha256
    return steps[-1]


def make_undisturbed(path: Path, job: dict[str, Any]) -> bytes:
    """Return the weights of the model that `job` leaves where nothing happens to it."""
    directory, process = start(path, **job)
    code, outcome = ended(directory, process)
    assert code == 0, outcome.message
    return read_weights(directory)


def check_attempt(directory: RunDirectory, number: int, before: int) -> int:
    """Check that attempt `number` went on from step `before`; return the newest step that it said to be uploaded."""
    for report in reports_of(directory, "metrics", number):
        if isinstance(report, StartReport):
            assert report.step == before
    events = [report for report in reports_of(directory, "events", number) if isinstance(report, EventReport)]
    return max([0, *(event.details.get("step", 0) for event in events if event.name == UPLOADED)])


def kill_once(bucket: Bucket, directory: RunDirectory, number: int, chance: random.Random) -> bool:
    """Begin an attempt in an empty directory, and kill all its processes; return whether there were any."""
    before = check_newest(bucket)
    process = start_attempt(directory, number, "--run-store", STORE)
    awaited = chance.choice(("fetch", "steps", "upload", "upload"))

    def is_there() -> bool:
        if awaited == "fetch":
            return directory.checkpoints.is_dir()
        if awaited == "steps":
            return any(isinstance(report, StepReport) for report in reports_of(directory, "metrics", number))
        return list_complete(bucket)[-1:] > [before]

    wait_until(lambda: process.poll() is not None or is_there())
    time.sleep(chance.uniform(0.0, 1.0))
    was_alive = process.poll() is None
    process.kill()
    process.wait()
    wait_until(lambda: processes_of(directory) == [])
    uploaded, kept = check_attempt(directory, number, before), check_newest(bucket)
    assert kept >= max(before, uploaded)
    shutil.rmtree(directory.path)
    directory.path.mkdir()
    return was_alive


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_a_run_killed_again_and_again_ends_with_the_same_model(bucket: Bucket, tmp_path: Path):
    weights = make_undisturbed(tmp_path / "alone", KILLED)
    chance = random.Random(SEED)
    bucket.proxy.failing_fraction = FAILING_FRACTION
    directory, process = start(tmp_path / "run", **KILLED, store=STORE)
    wait_until(lambda: list_complete(bucket), process)
    process.kill()
    process.wait()
    wait_until(lambda: processes_of(directory) == [])
    shutil.rmtree(directory.path)
    directory.path.mkdir()
    for number in range(2, NUM_KILLS + 1):
        assert kill_once(bucket, directory, number, chance), "the run is too short"
    before, number = check_newest(bucket), NUM_KILLS + 1
    process = start_attempt(directory, number, "--run-store", STORE)
    code, outcome = ended(directory, process, attempt=number)
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    check_attempt(directory, number, before)
    assert check_newest(bucket) == outcome.step
    assert read_weights(directory) == weights
    assert bucket.read("runs/run/model/model.safetensors") == weights
    assert bucket.proxy.num_failed > 0.05 * bucket.proxy.num_requests


def disturb(bucket: Bucket, process: subprocess.Popen[bytes], state: State) -> threading.Timer:
    """Put the bucket out of reach once the first checkpoint is there, and back in reach some time later."""
    wait_until(lambda: list_complete(bucket), process)
    bucket.proxy.state = state
    timer = threading.Timer(OUTAGE_SECONDS, lambda: setattr(bucket.proxy, "state", "well"))
    timer.start()
    return timer


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("state", ["cut", "silent"])
def test_a_bucket_that_is_out_of_reach_for_a_while_costs_nothing(bucket: Bucket, tmp_path: Path, state: State):
    weights = make_undisturbed(tmp_path / "alone", CUT)
    directory, process = start(tmp_path / "run", **CUT, store=STORE)
    timer = disturb(bucket, process, state)
    steps = len(reports_of(directory, "metrics"))
    wait_until(lambda: len(reports_of(directory, "metrics")) > steps, process)
    assert bucket.proxy.state == state, "training goes on meanwhile"
    code, outcome = ended(directory, process)
    timer.join()
    assert (code, outcome.state) == (0, "succeeded"), outcome.message
    assert check_newest(bucket) == outcome.step
    assert read_weights(directory) == weights
    assert bucket.read("runs/run/model/model.safetensors") == weights
