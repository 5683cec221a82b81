"""Attempts on several nodes: their pods begin together, and end together."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.http.problems import ProblemError
from service.jobs import actions
from service.quotas.schemas import NewQuota
from service.settings import Settings
from tests.kubernetes.clusters import MakeCluster
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.resources import PODS, SERVICES
from tests.kubernetes.played.behaviours import exit_with, find_no_node, ignore_sigterm, run, run_out_of_memory
from tests.kubernetes.played.foreign import make_foreign_pod
from tests.patience import wait_until
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.scene import (
    DONE,
    Scene,
    end_when_asked,
    leave,
    make_message,
    make_scene,
    stop_service,
)

PEER_SILENT = {"state": "failed", "reason": "peer_silent", "message": "node 1 (node-1) gave no sign of life for 45 s"}


@pytest.fixture
def scene(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """Scene on two nodes, on each of which one pod of a job has room."""
    cluster = make_cluster(num_nodes=0)
    for number in range(2):
        cluster.nodes.add(f"node-{number}", cpu="2")
    made = make_scene(cluster, settings, tmp_path, monkeypatch)
    yield made
    stop_service(made)


def submit(scene: Scene, **changes: object) -> str:
    return scene.submit(resources={"nodes": 2, "workers_per_node": 2}, **changes)


def test_two_nodes_are_two_pods_that_find_each_other_by_name(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=run(), times=2)
    job_id = submit(scene)
    scene.wait_for(job_id, "RUNNING")
    pods = scene.cluster.pods()
    name = scene.name_of(job_id)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-0", "node-1"}
    assert {(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in pods} == {
        (f"{name}-0", name),
        (f"{name}-1", name),
    }
    (arguments,) = {tuple(pod["spec"]["containers"][0]["args"]) for pod in pods}
    assert arguments[arguments.index("--node-rank") + 1] == "$(JOB_COMPLETION_INDEX)"
    assert arguments[arguments.index("--rendezvous") + 1] == f"{name}-0.{name}:29500"
    service = scene.cluster.get(SERVICES, name)
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert all(service["spec"]["selector"].items() <= pod["metadata"]["labels"].items() for pod in pods)
    for index in (1, 0):
        scene.cluster.kubelet.end(scene.pod(job_id, index), 0, make_message(DONE))
        scene.turn()
    (attempt,) = scene.services.jobs.list_attempts(job_id, USER)
    where = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod for pod in pods}
    nodes = ", ".join(where[index]["spec"]["nodeName"] for index in ("0", "1"))
    assert (scene.wait_for(job_id, "SUCCEEDED").reason, attempt.node) == ("completed", nodes)
    scene.wait_until_empty()


def test_a_pod_that_crashes_does_not_have_the_others_stopped_before_they_have_said_why(scene: Scene) -> None:
    """As the controller of Jobs would do with a plain backoffLimit: the first failure would end all pods."""
    scene.cluster.kubelet.on_start({0: run(), 1: exit_with(1, "a wheel came off")})
    job_id = submit(scene, max_restarts=0)
    scene.wait(job_id, lambda _: any(pod["status"].get("phase") == "Failed" for pod in scene.cluster.pods()))
    for _ in range(5):
        scene.turn()
    assert scene.see(job_id).state == "RUNNING"
    lost = {"state": "failed", "reason": "worker_crashed", "message": "node 1: rank 3 was killed", "rank": 3}
    scene.cluster.kubelet.end(scene.pod(job_id), 1, make_message(lost))
    job = scene.wait_for(job_id, "FAILED")
    assert (job.reason, job.message) == ("worker_crashed", "node 1: rank 3 was killed")
    scene.wait_until_empty()


def test_a_pod_whose_memory_is_at_its_end_names_itself(scene: Scene) -> None:
    scene.cluster.kubelet.on_start({0: run(), 1: run_out_of_memory()})
    job_id = submit(scene)
    scene.wait(job_id, lambda _: any(pod["status"].get("phase") == "Failed" for pod in scene.cluster.pods()))
    scene.cluster.kubelet.end(scene.pod(job_id), 1, make_message(PEER_SILENT))
    job = scene.wait_for(job_id, "FAILED")
    assert (job.reason, f"{scene.pod(job_id, 1)}-" in job.message) == ("out_of_memory", True)
    scene.wait_until_empty()


def test_a_lost_node_ends_the_attempt_on_all_and_the_next_one_runs_elsewhere(scene: Scene) -> None:
    scene.cluster.nodes.add("node-2", cpu="2")
    job_id = submit(scene, max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    where = {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod for pod in scene.cluster.pods()}
    lost = where["1"]["spec"]["nodeName"]
    launcher = scene.services.launchers["kubernetes"]
    before = launcher.capacity()
    scene.cluster.lose_node(lost)
    # The launch process of node 0 misses node 1 after 45 s, and the cluster does before.
    wait_until(lambda: launcher.capacity() != before)
    scene.cluster.kubelet.end(scene.pod(job_id), 1, make_message(PEER_SILENT))
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    for _ in range(15):
        scene.turn()
        scene.cluster.advance(5)
    job = scene.wait_for(job_id, "SUCCEEDED")
    first, _ = scene.services.jobs.list_attempts(job_id, USER)
    assert job.num_attempts == 2
    assert first.reason == "node_lost"
    assert "node 1 (node-1) gave no sign of life for 45 s" in first.message


def test_pods_that_do_not_end_with_the_others_are_killed(scene: Scene) -> None:
    scene.cluster.kubelet.on_start({0: exit_with(1, make_message(PEER_SILENT)), 1: ignore_sigterm()})
    job_id = submit(scene, max_restarts=0)
    scene.wait(job_id, lambda _: any(pod["status"].get("phase") == "Failed" for pod in scene.cluster.pods()))
    for _ in range(5):
        scene.turn()
        scene.cluster.advance(10)
    assert scene.wait_for(job_id, "FAILED").reason == "peer_silent"
    scene.wait_until_empty()


def test_pod_0_may_wait_for_the_service_after_another_pod_has_left_its_end(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=run())
    job_id = submit(scene, max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.kubelet.end(scene.pod(job_id, 1), 0, make_message(DONE))
    scene.turn()
    scene.cluster.advance(500)
    scene.turn()
    scene.turn()
    assert scene.see(job_id).state == "RUNNING"
    scene.cluster.kubelet.end(scene.pod(job_id), 0, make_message(DONE))
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1


def test_a_pod_that_finds_no_node_holds_up_the_others_and_says_so(scene: Scene) -> None:
    # Another program takes node 1, of which the service knows nothing.
    scene.cluster.apply(make_foreign_pod("other", "2", nodeName="node-1"))
    scene.cluster.kubelet.on_start(1, find_no_node("0/2 nodes are available: 2 Insufficient cpu."))
    job_id = submit(scene)
    job = scene.wait(job_id, lambda job: job.reason == "unschedulable")
    assert (job.state, "Insufficient cpu" in job.message) == ("STARTING", True)
    assert job.message.endswith("(1 of 2 pods run)")
    scene.cluster.api.delete(PODS, scene.cluster.namespace, "other", DeleteOptions(grace_period_seconds=0))
    scene.cluster.kubelet.change(scene.pod(job_id, 1), run())
    scene.wait_for(job_id, "RUNNING")


def test_a_range_of_nodes_begins_with_those_that_are_there(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(2, find_no_node("0/2 nodes are available: 2 Insufficient cpu."))
    job_id = scene.submit(resources={"nodes": {"min": 1, "max": 3}, "workers_per_node": 2}, batch={"global_size": 96})
    job = scene.wait_for(job_id, "RUNNING")
    phases = sorted(pod["status"]["phase"] for pod in scene.cluster.pods())
    assert (job.num_attempts, phases) == (1, ["Pending", "Running", "Running"])
    # The scheduler has taken the first one first, and either of the others.
    running = [pod["metadata"]["name"] for pod in scene.cluster.pods() if pod["status"]["phase"] == "Running"]
    assert any(name.startswith(scene.pod(job_id, 0)) for name in running)
    for name in running:
        scene.cluster.kubelet.end(name, 0, make_message(DONE))
    scene.turn()
    # The third one found a node only now, and nobody to join.
    scene.cluster.advance(20)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    scene.wait_until_empty()


def test_a_range_of_nodes_counts_in_full_in_the_quota_of_its_owner(scene: Scene) -> None:
    scene.services.quotas.put(USER.owner, NewQuota(num_cores=4), USER)
    with pytest.raises(ProblemError, match="asks for 6 cores"):
        scene.submit(resources={"nodes": {"min": 1, "max": 3}, "workers_per_node": 2}, batch={"global_size": 96})
    first = scene.submit()
    scene.wait_for(first, "RUNNING")
    range_id = scene.submit(resources={"nodes": {"min": 1, "max": 2}, "workers_per_node": 2})
    scene.turn()
    job = scene.see(range_id)
    assert (job.state, job.reason) == ("QUEUED", "quota_exceeded")
    assert "needs 4 cores" in job.message
    scene.services.jobs.change(first, USER, actions.cancel)
    scene.wait_for(range_id, "STARTING", "RUNNING")


def test_a_cancelled_job_is_stopped_on_all_nodes(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    job_id = submit(scene)
    scene.wait_for(job_id, "RUNNING")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    scene.wait_for(job_id, "CANCELLED")
    scene.wait_until_empty()


def test_pods_that_take_long_to_kill_are_killed_in_several_rounds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.launcher.KILL_ROUND_SECONDS", 0.0)
    scene.cluster.kubelet.on_start(behaviour=ignore_sigterm())
    job_id = submit(scene)
    scene.wait_for(job_id, "RUNNING")
    (attempt,) = scene.services.jobs.list_attempts(job_id, USER)
    launcher = scene.services.launchers["kubernetes"]
    (launch,) = [launch for launch in launcher.list() if launch.attempt == attempt.number]
    for num_deleted in (1, 2):
        assert not launcher.kill(launch)
        assert len(scene.cluster.recorder.requests("delete", "pods")) == num_deleted
    scene.cluster.advance(2)
    assert scene.cluster.pods() == []
