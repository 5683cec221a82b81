"""Jobs that Kueue admits, takes back, and admits again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.jobs import actions
from service.settings import Settings
from tests.kubernetes.clusters import AnyCluster, MakeCluster
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.scene import DONE, Scene, end_when_asked, leave, make_scene, stop_service


@pytest.fixture
def scene(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    cluster = make_cluster(has_kueue=True)
    for kind in ("ClusterQueue", "LocalQueue"):
        spec = {"clusterQueue": "ads"} if kind == "LocalQueue" else {}
        cluster.apply({"apiVersion": find_version(cluster), "kind": kind, "metadata": {"name": "ads"}, "spec": spec})
    made = make_scene(cluster, settings, tmp_path, monkeypatch, queue_name="ads")
    yield made
    stop_service(made)


def find_version(cluster: AnyCluster) -> str:
    """Return the version of Kueue's API that a cluster has."""
    return next(kind.api_version for kind in cluster.catalogue if kind.plural == "localqueues")


def test_a_job_waits_for_its_queue_and_says_so_in_its_words(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    job_id = scene.submit()
    job = scene.wait(job_id, lambda job: job.reason == "quota_exceeded" and "flavor" in job.message)
    assert "insufficient unused quota for cpu in flavor default-flavor, 1 more needed" in job.message
    scene.cluster.kueue.admit(scene.name_of(job_id))
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    scene.wait_until_empty()


def test_a_job_that_its_queue_takes_back_queues_again_and_goes_on(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=end_when_asked(), times=1)
    job_id = scene.submit(max_restarts=0)
    scene.wait(job_id, lambda _: scene.has_job(scene.name_of(job_id)))
    scene.cluster.settle()
    scene.cluster.kueue.admit(scene.name_of(job_id))
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.kueue.evict(scene.name_of(job_id))
    scene.wait(job_id, lambda _: scene.has_job(scene.name_of(job_id, 2)))
    first, _ = scene.services.jobs.list_attempts(job_id, USER)
    assert first.reason in ("evicted", "stop_requested")
    scene.cluster.settle()
    scene.cluster.kueue.admit(scene.name_of(job_id, 2))
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    scene.wait_until_empty()


def test_a_job_that_waits_in_its_queue_can_be_cancelled(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait(job_id, lambda job: job.reason == "quota_exceeded")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    scene.wait_for(job_id, "CANCELLED")
    scene.wait_until_empty()


def test_every_job_goes_to_the_queue_at_once_whatever_the_nodes_have(scene: Scene) -> None:
    jobs = [scene.submit(resources={"workers_per_node": 64}) for _ in range(3)]
    for job_id in jobs:
        assert scene.wait_for(job_id, "STARTING").num_attempts == 1
