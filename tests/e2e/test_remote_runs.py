"""Jobs trained by real ranks on machines that share no disk with the service: all that it knows was reported to it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dlrm.record import EndReason, Outcome, RunDirectory, find_newest_checkpoint
from service.launchers.processes import find_marked, kill_all
from tests.service.api import Api, make_settings, serve_api
from tests.service.remote_launcher import Machines, RemoteLauncher

RUN: dict[str, Any] = {"epochs": 2, "eval_every_fraction": 0.5, "checkpoint_every_seconds": 0.3, "yardsticks": "none"}
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 40_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 2048},
    "run": RUN,
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
    "resources": {"workers_per_node": 2, "memory": "1GiB"},
}
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path / "elsewhere")


@pytest.fixture
def api(tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serve_remote(tmp_path, machines, monkeypatch) as running:
        yield running


@contextmanager
def serve_remote(directory: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Run a service whose launcher has these machines."""
    monkeypatch.setattr("service.app.LocalLauncher", partial(RemoteLauncher, machines))
    settings = make_settings(directory, f"sqlite:///{directory}/service.sqlite3")
    settings = settings.model_copy(update={"trainer_python": Path(sys.executable)})
    try:
        with serve_api(settings, runs_control_loop=True) as running:
            yield running
    finally:
        for attempt in machines.directory.glob("launcher/*/attempt-*"):
            kill_all(find_marked(attempt))


def mislead(job: dict[str, Any]) -> RunDirectory:
    """Make a run directory at the place that the service knows, of another run that has failed."""
    decoy = RunDirectory(Path(job["run_directory"]))
    attempt = decoy.attempt(1)
    attempt.create()
    Outcome(state="failed", reason=EndReason.DIVERGED, message="another run").write_first(attempt.outcome)
    attempt.launch_log.write_text("another run\n")
    attempt.rank_log(0).write_text("another run\n")
    decoy.model.mkdir()
    return decoy


def list_files(directory: RunDirectory) -> list[str]:
    return sorted(str(path) for path in directory.path.rglob("*"))


def read_log(api: Api, job_id: str, **query: Any) -> str:
    part = api.viewer.get(f"/v1/jobs/{job_id}/logs", params=query).json()
    assert part["complete"]
    return part["text"]


def test_a_job_that_succeeds_has_all_that_it_reported(api: Api, machines: Machines) -> None:
    job = api.submit(**DOCUMENT)
    decoy = mislead(job)
    files = list_files(decoy)
    ended = api.wait_for(job["id"], *ENDED)
    assert (ended["state"], ended["reason"], ended["num_attempts"]) == ("SUCCEEDED", "completed", 1), ended["message"]
    run = machines.find_run(job["id"])
    outcome = Outcome.read(run.attempt(1).outcome)
    assert outcome is not None
    assert ended["metrics"] == outcome.metrics
    assert ended["model_path"] == str(run.model)
    # What the service shows is what the run has written on its own disk.
    for rank in (0, 1):
        text = run.attempt(1).rank_log(rank).read_text()
        assert read_log(api, job["id"], rank=rank) == text
        assert bool(text) == (rank == 0)
    launch_log = run.attempt(1).launch_log.read_text()
    assert read_log(api, job["id"], rank="launch") == launch_log
    assert "succeeded: completed" in launch_log
    steps = api.viewer.get(f"/v1/jobs/{job['id']}/metrics", params={"kind": "step"}).json()["items"]
    assert [step["step"] for step in steps] == list(range(1, ended["progress"]["num_steps"] + 1))
    newest = find_newest_checkpoint(run.checkpoints)
    assert newest is not None
    manifest = newest.read_manifest()
    shown = api.viewer.get(f"/v1/jobs/{job['id']}/checkpoints").json()["items"]
    assert [item["path"] for item in shown] == sorted((str(path) for path in run.checkpoints.iterdir()), reverse=True)
    assert (shown[0]["step"], shown[0]["num_bytes"]) == (manifest.step, manifest.num_bytes)
    assert (shown[0]["num_samples"], shown[0]["world_size"]) == (manifest.num_samples, 2)
    attempt = api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"][0]
    assert (attempt["start_step"], attempt["saved_step"], attempt["exit_code"]) == (0, newest.step, 0)
    # The output of the machine has the ranks' too, and nothing was read or written where the service looks otherwise.
    output = machines.find_mounted(job["id"]).attempt(1).launch_log.read_text()
    assert "[rank 0] " in output
    assert list_files(decoy) == files
