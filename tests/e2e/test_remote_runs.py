"""Jobs trained by real ranks on machines that share no disk with the service: all that it knows was reported to it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlrm.record import AttemptEnd, EndReason, Outcome, RunDirectory, find_newest_checkpoint
from service.access.secret import hash_secret
from service.launchers.processes import find_marked, kill_all
from service.store.attempt_repository import AttemptRepository
from service.store.launches import make_launch
from service.store.models import Job
from tests.bucket.server import Bucket, Proxy
from tests.patience import wait_until
from tests.service.api import Api, make_settings, serve_api
from tests.service.remote_launcher import Machines, RemoteLauncher

RUN: dict[str, Any] = {"epochs": 2, "eval_every_fraction": 0.5, "checkpoint_every_seconds": 1.0, "yardsticks": "none"}
DOCUMENT: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 40_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 2048},
    "run": RUN,
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
    "resources": {"workers_per_node": 2, "memory": "2GiB"},
}
KILLED = "rank 1 was killed by SIGKILL; often the kernel's out-of-memory killer"
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
    monkeypatch.setattr("service.launchers.construction.LocalLauncher", partial(RemoteLauncher, machines))
    settings = make_settings(directory, f"sqlite:///{directory}/service.sqlite3")
    settings = settings.model_copy(update={"trainer_python": Path(sys.executable)})
    try:
        with serve_api(settings, runs_control_loop=True) as running:
            yield running
    finally:
        for attempt in machines.directory.glob("launcher/*/attempt-*"):
            kill_all(find_marked(attempt))


def start_proxy(api: Api, machines: Machines) -> Proxy:
    """Start a proxy of the service, through which the machines report from now on."""
    host, port = api.url.removeprefix("http://").split(":")
    proxy = Proxy((host, int(port)))
    machines.proxy = proxy.address
    return proxy


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_job_on_bad_rows_fails_with_the_message_that_its_launch_process_reported(
    api: Api, machines: Machines, tmp_path: Path
) -> None:
    good = "\t".join(["1", *["3"] * 13, *["68fd1e64"] * 26])
    (tmp_path / "data" / "clicks.tsv").write_text(f"{good}\n{good}\n2{good[1:]}\n")
    job = api.submit(**{**DOCUMENT, "data": {"train": ["clicks.tsv"]}})
    ended = api.wait_for(job["id"], *ENDED)
    assert (ended["state"], ended["reason"], ended["num_attempts"]) == ("FAILED", "bad_input", 1)
    assert "clicks.tsv, line 3, label: '2' is not a label (valid: 0 or 1)" in ended["message"]
    attempt = api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"][0]
    assert attempt["exit_code"] == 64
    left = AttemptEnd.model_validate_json(machines.find_termination(job["id"], 1).read_text())
    assert left.outcome == Outcome.read(machines.find_run(job["id"]).attempt(1).outcome)


def wait_for_checkpoint(api: Api, job_id: str) -> int:
    """Wait until the service knows a checkpoint and a later step, and return the step of the checkpoint."""

    def find_step() -> int | None:
        items = api.viewer.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
        job = api.viewer.get(f"/v1/jobs/{job_id}").json()
        assert job["state"] not in ENDED, job["message"]
        return items[0]["step"] if items and (job["progress"]["step"] or 0) > items[0]["step"] else None

    return wait_until(find_step)


def find_ranks(machines: Machines, job_id: str, attempt: int = 1) -> list[psutil.Process]:
    found = find_marked(machines.find_mounted(job_id).attempt(attempt).path)
    return [process for process in found if "dlrm.train.worker" in process.cmdline()]


def list_steps(api: Api, job_id: str) -> list[int]:
    items = api.viewer.get(f"/v1/jobs/{job_id}/metrics", params={"kind": "step", "limit": 10_000}).json()["items"]
    return [item["step"] for item in items]


def check_restart(api: Api, job_id: str, saved_step: int) -> list[dict[str, Any]]:
    """Check that a job whose rank was killed has gone on from a checkpoint, and return its attempts."""
    ended = api.wait_for(job_id, *ENDED)
    assert (ended["state"], ended["num_attempts"]) == ("SUCCEEDED", 2), ended["message"]
    first, second = api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
    assert (first["reason"], first["message"]) == ("worker_crashed", KILLED)
    assert [(end["rank"], end["exit_code"]) for end in first["rank_ends"]][-1] == (1, -9)
    # A rank may be killed between a checkpoint that is complete and its report.
    assert second["start_step"] >= first["saved_step"] >= saved_step
    assert list_steps(api, job_id) == list(range(1, ended["progress"]["num_steps"] + 1))
    assert read_log(api, job_id, attempt=1, rank="launch")
    return [first, second]


@pytest.mark.slow
def test_a_job_whose_rank_is_killed_goes_on_from_the_checkpoint_on_its_claim(api: Api, machines: Machines) -> None:
    job_id = api.submit(**{**DOCUMENT, "run": {**RUN, "epochs": 8}})["id"]
    saved_step = wait_for_checkpoint(api, job_id)
    find_ranks(machines, job_id)[-1].kill()
    check_restart(api, job_id, saved_step)


@pytest.mark.slow
def test_a_job_goes_on_on_another_machine_from_its_bucket(
    bucket: Bucket, tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.store = "s3://bucket/runs"
    with serve_remote(tmp_path, machines, monkeypatch) as api:
        job_id = api.submit(**{**DOCUMENT, "run": {**RUN, "epochs": 8}})["id"]
        saved_step = wait_for_checkpoint(api, job_id)
        find_ranks(machines, job_id)[-1].kill()
        check_restart(api, job_id, saved_step)
        ended = api.viewer.get(f"/v1/jobs/{job_id}").json()
        assert ended["model_path"] == f"s3://bucket/runs/{job_id}/model"
        shown = api.viewer.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
        names = bucket.list_names(f"runs/{job_id}/checkpoints")
        paths = [f"s3://bucket/{name.removesuffix('/COMPLETE')}" for name in names if name.endswith("/COMPLETE")]
        assert sorted(item["path"] for item in shown) == paths
        # The second machine began with an empty directory.
        assert machines.find_run(job_id, 1).path != machines.find_run(job_id, 2).path
        events = api.viewer.get(f"/v1/jobs/{job_id}/events", params={"limit": 1000}).json()["items"]
        model = next(event["details"] for event in events if "files" in event["details"])
        sizes = {file["name"]: file["num_bytes"] for file in model["files"]}
        assert sizes["model.safetensors"] == len(bucket.read(f"runs/{job_id}/model/model.safetensors"))
        # Another job starts from the model in the bucket, with its optimizer state.
        warm = {"warm_start": {"from": job_id, "optimizer_state": True}}
        heir = api.submit(**{**DOCUMENT, "run": {**RUN, **warm}})
        ended = api.wait_for(heir["id"], *ENDED)
        assert ended["state"] == "SUCCEEDED", ended["message"]
        events = api.viewer.get(f"/v1/jobs/{heir['id']}/events", params={"limit": 1000}).json()["items"]
        assert f"s3://bucket/runs/{job_id}" in {event["details"].get("from") for event in events}


@pytest.mark.slow
def test_a_job_is_paused_and_resumed_and_at_last_cancelled(api: Api, machines: Machines) -> None:
    job_id = api.submit(**{**DOCUMENT, "run": {**RUN, "epochs": 1000}})["id"]
    wait_for_checkpoint(api, job_id)
    api.submitter.post(f"/v1/jobs/{job_id}/pause")
    api.wait_for(job_id, "PAUSED")
    api.submitter.post(f"/v1/jobs/{job_id}/resume")

    def is_trained_further() -> bool:
        attempts = api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
        return len(attempts) == 2 and attempts[1]["start_step"] is not None

    wait_until(is_trained_further)
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    ended = api.wait_for(job_id, *ENDED)
    assert (ended["state"], ended["reason"], ended["model_path"]) == ("CANCELLED", "user_cancelled", None)
    first, second = api.viewer.get(f"/v1/jobs/{job_id}/attempts").json()["items"]
    assert (first["state"], first["exit_code"], second["state"], second["exit_code"]) == ("STOPPED", 75, "STOPPED", 75)
    assert second["start_step"] == first["saved_step"]
    assert find_marked(machines.find_mounted(job_id).attempt(2).path) == []


@pytest.mark.slow
def test_a_job_trains_on_while_the_service_is_away_and_while_its_token_is_replaced(
    tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_remote(tmp_path, machines, monkeypatch) as api:
        proxy = start_proxy(api, machines)
        job_id = api.submit(**{**DOCUMENT, "run": {**RUN, "epochs": 12}})["id"]
        wait_for_checkpoint(api, job_id)
        run = machines.find_run(job_id)
        proxy.state = "cut"
        wait_until(lambda: "does not take reports" in run.attempt(1).launch_log.read_text())
        known, written = len(list_steps(api, job_id)), count_steps(run)
        wait_until(lambda: count_steps(run) > written + 20)
        assert len(list_steps(api, job_id)) == known
        # While it is away, the service gives the attempt another token.
        replace_token(api, machines, job_id)
        proxy.state = "well"
        ended = api.wait_for(job_id, *ENDED)
        assert (ended["state"], ended["num_attempts"]) == ("SUCCEEDED", 1), ended["message"]
        assert list_steps(api, job_id) == list(range(1, ended["progress"]["num_steps"] + 1))
        assert read_log(api, job_id, limit_bytes=2**20) == run.attempt(1).rank_log(0).read_text()
        proxy.close()


def count_steps(run: RunDirectory) -> int:
    return run.attempt(1).spool_file(0, "metrics").read_bytes().count(b"\n")


def replace_token(api: Api, machines: Machines, job_id: str) -> None:
    """Give the running attempt of a job another token, at the service and where it is mounted."""
    launcher = api.services.launchers["local"]
    assert isinstance(launcher, RemoteLauncher)
    with api.services.database.write() as session:
        attempt = AttemptRepository(session).list_by_job(job_id)[-1]
        launch = make_launch(session.get_one(Job, job_id), attempt)
        AttemptRepository(session).update(attempt.id, token_hash=hash_secret("another"))
    launcher.replace_token(launch, "another")
