"""Runs in a bucket on several nodes that share no directory. All nodes are this machine."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.record import EndReason, EventReport, Outcome, RunDirectory
from dlrm.run_store.layout import name_checkpoint, name_content
from tests.bucket.server import Bucket
from tests.e2e.launching import TINY, Nodes, find_free_port, processes_of, reports_of, start_attempt
from tests.e2e.test_bucket import RUN, STORE, list_complete, read_weights
from tests.patience import wait_until

ENDLESS = {**RUN, "epochs": 1000, "peer_timeout_seconds": 8.0}


def make_directories(path: Path, run: dict[str, Any]) -> list[RunDirectory]:
    """Make run directories for two nodes; only that of node 0 has the document."""
    directories = [RunDirectory(path / f"node{node}" / "run") for node in (0, 1)]
    for directory in directories:
        directory.path.mkdir(parents=True)
    job = JobConfig.model_validate({**TINY, "run": run, "resources": {"nodes": 2, "workers_per_node": 1}})
    directories[0].spec.write_text(resolve(job).model_dump_json())
    return directories


def start_apart(directories: list[RunDirectory], number: int, stores: tuple[str, str] = (STORE, STORE)) -> Nodes:
    """Begin an attempt on two nodes with run directories of their own."""
    address = f"127.0.0.1:{find_free_port()}"
    processes = [
        start_attempt(directory, number, "--node-rank", str(node), "--rendezvous", address, "--run-store", stores[node])
        for node, directory in enumerate(directories)
    ]
    return Nodes(directories[0], processes)


def lose(directories: list[RunDirectory]) -> None:
    """Remove all that the nodes have on their disks."""
    for directory in directories:
        wait_until(lambda directory=directory: processes_of(directory) == [])
        shutil.rmtree(directory.path)
        directory.path.mkdir()


def find_resumed_step(directory: RunDirectory, attempt: int) -> int:
    events = [report for report in reports_of(directory, "events", attempt) if isinstance(report, EventReport)]
    return next(event.details["step"] for event in events if event.name == "resumed")


@pytest.mark.slow
def test_nodes_without_a_common_directory_train_one_model_that_is_whole_in_the_bucket(bucket: Bucket, tmp_path: Path):
    directories = make_directories(tmp_path, RUN)
    # As `dlrm train --profile` does, on machine 0 alone.
    directories[0].attempt(1).profile.path.mkdir(parents=True)
    codes, outcome = start_apart(directories, 1).wait()
    assert (codes, outcome.state) == ([0, 0], "succeeded"), outcome.message
    newest = list_complete(bucket)[-1]
    assert newest == outcome.step
    complete = bucket.read(f"runs/run/{name_checkpoint(newest)}/COMPLETE")
    below = f"runs/run/{name_content(newest, complete)}"
    names = {name.removeprefix(f"{below}/") for name in bucket.list_names(below)}
    assert names == {".metadata", "__0_0.distcp", "__1_0.distcp", "parts/node-0.json", "parts/node-1.json"}
    assert bucket.read("runs/run/model/model.safetensors") == read_weights(directories[0])
    # What each of them has said is in one place.
    said = set(bucket.list_names("runs/run/attempt-1"))
    logs = ("logs/rank-0.log", "logs/rank-1.log", "logs/launch-node-1.log", "spool/rank-1.events.jsonl", "outcome.json")
    logs += ("profile/rank-0.json", "profile/rank-1.json", "profile/rank-1.trace.json.gz")
    assert {f"runs/run/attempt-1/{name}" for name in logs} <= said
    assert Outcome.read(directories[1].attempt(1).outcome) == outcome


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_node_is_lost_and_all_go_on_from_the_bucket_to_the_same_model(bucket: Bucket, tmp_path: Path, victim: int):
    job = {**RUN, "epochs": 12, "peer_timeout_seconds": 8.0}
    alone = make_directories(tmp_path / "alone", job)
    others = ("s3://bucket/alone", "s3://bucket/alone")
    codes, outcome = start_apart(alone, 1, others).wait()
    assert codes == [0, 0], outcome.message

    directories = make_directories(tmp_path, job)
    nodes = start_apart(directories, 1)
    wait_until(lambda: list_complete(bucket), nodes.processes[0])
    nodes.signal(victim, signal.SIGKILL)
    assert nodes.processes[1 - victim].wait() == 1
    lost = Outcome.read(directories[1 - victim].attempt(1).outcome)
    assert lost is not None
    assert lost.reason is EndReason.PEER_SILENT
    assert lost.message.startswith(f"node {victim} (")

    kept = list_complete(bucket)[-1]
    lose(directories)
    codes, outcome = start_apart(directories, 2).wait(attempt=2)
    assert (codes, outcome.state) == ([0, 0], "succeeded"), outcome.message
    assert find_resumed_step(directories[0], 2) == kept
    assert read_weights(directories[0]) == read_weights(alone[0])


@pytest.mark.slow
def test_nodes_that_stop_go_on_from_what_each_of_them_has_and_the_bucket(bucket: Bucket, tmp_path: Path):
    directories = make_directories(tmp_path, {**ENDLESS, "epochs": 30})
    nodes = start_apart(directories, 1)
    wait_until(lambda: list_complete(bucket), nodes.processes[0])
    nodes.processes[1].send_signal(signal.SIGTERM)
    codes, outcome = nodes.wait()
    assert (codes, outcome.state) == ([75, 75], "stopped")
    assert list_complete(bucket)[-1] == outcome.step
    # One of them is another machine now.
    lose(directories[1:])
    codes, second = start_apart(directories, 2).wait(attempt=2)
    assert (codes, second.state) == ([0, 0], "succeeded")
    assert find_resumed_step(directories[0], 2) == outcome.step
