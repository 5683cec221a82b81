"""Jobs of a cluster as people see them: on the terminal and on the page, with nothing of a disk that is not there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from dlrm.record import PushTarget
from service.access.principal import Role
from service.settings import Settings
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.played.behaviours import be_evicted, exit_with, find_no_node, run
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.service.api import Api, make_document, serve_api
from tests.service.launchers.kubernetes.conftest import prepare
from tests.service.launchers.kubernetes.scene import DONE, Scene, leave, write_options

BUCKET = "s3://clicks-runs/ads"
NO_NODE = find_no_node("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")


@dataclass
class Place:
    """A service whose jobs run on a cluster, and the commands of a user of it."""

    cluster: Cluster
    api: Api
    key: str
    ids: dict[str, str] = field(default_factory=dict[str, str])

    def submit(self, nodes: int = 1, **resources: Any) -> str:
        wanted = {"nodes": nodes, "workers_per_node": 1, "memory": "1GiB", **resources}
        document = make_document(resources=wanted, batch={"global_size": 48}, max_restarts=0)
        answer = self.api.submitter.post("/v1/jobs", json=document | {"data": {"train": ["/data/clicks/day_*.tsv"]}})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def get(self, path: str) -> Any:
        answer = self.api.viewer.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command of `dlrm`, and return what it prints."""
        command = [sys.executable, "-m", "cli", *arguments]
        environment = {**os.environ, "DLRM_URL": self.api.url, "DLRM_API_KEY": self.key, "COLUMNS": "80"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def push(self, job_id: str, rank: int, stream: str, *lines: str) -> None:
        """Push lines as a launch process in a pod does, with the token of its Secret."""
        scene = Scene(self.cluster, self.api.services, self.api.services.settings)
        target = PushTarget.model_validate_json(scene.get_secret(job_id)["push.json"])
        url = f"{self.api.url}/v1/ingest/{target.url.rpartition('/')[2]}"
        body = {"rank": rank, "stream": stream, "first_seq": 1, "lines": lines}
        answer = httpx.post(url, json=body, headers={"Authorization": f"Bearer {target.token}"})
        assert answer.status_code == 200, answer.text


@pytest.fixture(params=["claim", pytest.param("bucket", marks=pytest.mark.slow)])
def place(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Place]:
    with Cluster(num_nodes=3, ticking=True) as cluster:
        prepare(cluster)
        cluster.kubelet.on_start(behaviour=run())
        cluster.run_in_background()
        monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(tmp_path / "kubeconfig")))
        path = write_options(tmp_path)
        if request.param == "bucket":
            path.write_text(path.read_text().replace('runs_claim = "runs"', f'run_store = "{BUCKET}"'))
        chosen = settings.model_copy(update={"launchers": ["kubernetes", "local"], "kubernetes": path})
        with serve_api(chosen, runs_control_loop=True) as api:
            key = api.services.keys.create("me", Role.SUBMITTER, owner="team").key
            yield Place(cluster, api, key)
            api.services.launchers.close()


def find_files(place: Place, job_id: str) -> str:
    """Return where the files of a run are, by the settings of the launcher."""
    path = place.api.services.settings.kubernetes
    assert path is not None, "the launcher has settings"
    if BUCKET in path.read_text():
        return f"{BUCKET}/{job_id}"
    return f"{job_id} on the PersistentVolumeClaim runs (in pods /runs/{job_id})"


def test_a_running_job_of_three_nodes_names_them_its_image_and_its_files(place: Place) -> None:
    job_id = place.submit(nodes=3)
    place.api.wait_for(job_id, "RUNNING")
    wait_until(lambda: place.get(f"/v1/jobs/{job_id}/attempts")["items"][0]["node"] == "node-0, node-1, node-2")
    job = place.get(f"/v1/jobs/{job_id}")
    files = find_files(place, job_id)
    assert (job["launcher"], job["num_nodes"], job["image"]) == ("kubernetes", 3, "registry.example/dlrm:1")
    assert (job["files_at"], job["are_files_seen"]) == (files, False)
    shown = place.run("show", job_id)
    for words in ("kubernetes, 3 nodes", "registry.example/dlrm:1", "node-0, node-1, node-2", files):
        assert words in shown


@pytest.mark.slow
def test_each_launch_process_has_a_log_of_its_own(place: Place) -> None:
    job_id = place.submit(nodes=3)
    place.api.wait_for(job_id, "RUNNING")
    for node in range(3):
        place.push(job_id, node, "launch", f"begins on node {node}")
        place.push(job_id, node, "log", f"rank {node} trains")
    assert place.run("logs", job_id, "--rank", "2") == "rank 2 trains\n"
    assert place.run("logs", job_id, "--rank", "launch") == "begins on node 0\n"
    assert place.run("logs", job_id, "--rank", "launch", "--node", "2") == "begins on node 2\n"
    assert "--node: rank 1 has one log" in place.run("logs", job_id, "--rank", "1", "--node", "1", code=2)


@pytest.mark.slow
def test_a_job_that_waits_for_a_node_says_so_in_list_and_events(place: Place) -> None:
    place.cluster.kubelet.on_start(behaviour=NO_NODE, times=1)
    job_id = place.submit(kubernetes={"node_selector": {"pool": "gpu"}})
    wait_until(lambda: place.get(f"/v1/jobs/{job_id}")["reason"] == "unschedulable")
    assert "unschedulable" in place.run("jobs")
    events = place.get(f"/v1/jobs/{job_id}/events")["items"]
    assert (events[-1]["kind"], events[-1]["reason"]) == ("repair", "unschedulable")
    assert "0/3 nodes are available" in place.run("show", job_id)


def test_the_words_of_the_cluster_go_on_without_a_stop_of_their_own(place: Place) -> None:
    place.cluster.kubelet.on_start(behaviour=be_evicted(), times=1)
    job_id = place.submit()
    wait_until(lambda: place.get(f"/v1/jobs/{job_id}")["num_attempts"] == 2)
    messages = [event["message"] for event in place.get(f"/v1/jobs/{job_id}/events")["items"]]
    assert any("low on resource: memory; attempt 2" in message for message in messages)


@pytest.mark.slow
def test_a_deleted_job_says_where_its_files_stay(place: Place) -> None:
    place.cluster.kubelet.on_start(behaviour=exit_with(64, "39 columns"), times=1)
    first = place.submit()
    place.api.wait_for(first, "FAILED")
    assert f"its files stay, since the service does not see them: {find_files(place, first)}" in place.run(
        "delete", "--yes", first
    )
    place.cluster.kubelet.on_start(behaviour=leave(DONE, 0), times=1)
    second = place.submit()
    place.api.wait_for(second, "SUCCEEDED")
    answer = place.api.submitter.delete(f"/v1/jobs/{second}").json()
    assert (answer["files_left_at"], answer["message"]) == (find_files(place, second), "")


def test_a_job_that_never_began_leaves_no_files(place: Place) -> None:
    document = {"data": {"train": ["/data/clicks/day_*.tsv"]}, "resources": {"workers_per_node": 900}}
    job_id = place.api.submitter.post("/v1/jobs", json=document | {"batch": {"global_size": 900}}).json()["id"]
    place.api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    place.api.wait_for(job_id, "CANCELLED")
    assert place.api.submitter.delete(f"/v1/jobs/{job_id}").json()["files_left_at"] is None


@pytest.mark.slow
@pytest.mark.parametrize("place", ["claim"], indirect=True)
def test_the_page_shows_nodes_logs_of_each_and_what_a_job_waits_for(place: Place, browser: Browser) -> None:
    running = place.submit(nodes=3)
    place.api.wait_for(running, "RUNNING")
    place.cluster.kubelet.on_start(behaviour=NO_NODE, times=1)
    waiting = place.submit(kubernetes={"node_selector": {"pool": "gpu"}})
    wait_until(lambda: place.get(f"/v1/jobs/{waiting}")["reason"] == "unschedulable")
    for node in (0, 1):
        place.push(running, node, "launch", f"begins on node {node}")
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    page = context.new_page()
    page.goto(f"{place.api.url}/signin")
    page.fill("input", place.key)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{place.api.url}/")
    page.goto(f"{place.api.url}/jobs/{running}")
    expect(page.locator("#files")).to_contain_text("node-0, node-1, node-2")
    expect(page.locator("#files")).to_contain_text(find_files(place, running))
    expect(page.locator("#tiles")).to_contain_text("3 ranks on 3 nodes")
    page.select_option("#rank", label="launch of node 1")
    expect(page.locator("#log")).to_have_text("begins on node 1\n")
    page.goto(f"{place.api.url}/jobs/{waiting}")
    expect(page.locator("#events")).to_contain_text("unschedulable")
    expect(page.locator("#events")).not_to_contain_text("null")
    context.close()
