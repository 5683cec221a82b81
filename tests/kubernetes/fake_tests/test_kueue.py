"""Jobs of a queue wait for Kueue."""

from collections.abc import Iterator

import pytest
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake_tests.answers import conditions_by_type
from tests.kubernetes.fake_tests.manifests import EXIT_CODE_RULE, make_job


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Cluster with Kueue and one queue."""
    api_version = "kueue.x-k8s.io/v1beta1"
    queue = {"apiVersion": api_version, "kind": "LocalQueue", "metadata": {"name": "team"}}
    with Cluster(has_kueue=True) as fake:
        fake.apply({**queue, "spec": {"clusterQueue": "all"}})
        yield fake


def queued_job(queue: str = "team") -> dict:
    """Return a Job of a queue."""
    job = make_job()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return job


def test_a_job_of_a_queue_waits_until_it_is_admitted(cluster: Cluster, batch: client.BatchV1Api) -> None:
    created = batch.create_namespaced_job("default", queued_job())
    assert created.spec.suspend, "the webhook of Kueue suspends it"
    cluster.settle()
    workload = cluster.kueue.find_workload("j")
    assert workload is not None
    reserved = conditions_by_type(workload)["QuotaReserved"]
    assert (reserved["status"], reserved["reason"]) == ("False", "Pending")
    assert "insufficient unused quota" in reserved["message"]
    assert cluster.pods("j") == []

    cluster.kueue.admit("j", node_selector={"kubernetes.io/hostname": "node-0"})
    cluster.settle()
    conditions = conditions_by_type(cluster.kueue.find_workload("j") or {})
    assert conditions["QuotaReserved"]["message"] == "Quota reserved in ClusterQueue all"
    assert conditions["Admitted"]["status"] == "True"
    assert len(cluster.pods("j")) == 2
    assert cluster.pods("j")[0]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-0"}


def test_an_evicted_job_is_suspended_and_may_be_admitted_again(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", queued_job())
    cluster.settle()
    cluster.kueue.admit("j")
    cluster.settle()
    cluster.kueue.evict("j")
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert job.spec.suspend
    assert job.status.failed is None
    assert cluster.pods("j") == []
    evicted = conditions_by_type(cluster.kueue.find_workload("j") or {})["Evicted"]
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    cluster.kueue.admit("j")
    cluster.settle()
    assert len(cluster.pods("j")) == 2


def test_a_job_that_fails_as_it_is_evicted_ends_once_it_is_admitted_again(
    cluster: Cluster, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start(None, behaviours.end_on_sigterm(64))
    job = queued_job()
    job["spec"].update(podFailurePolicy={"rules": [EXIT_CODE_RULE]})
    batch.create_namespaced_job("default", job)
    cluster.settle()
    cluster.kueue.admit("j")
    cluster.settle()
    cluster.kueue.evict("j")
    cluster.settle()
    types = [one.type for one in batch.read_namespaced_job("j", "default").status.conditions]
    assert types == ["Suspended", "FailureTarget"], "nothing ends that has no start time"
    cluster.advance(10)
    cluster.kueue.admit("j")
    cluster.settle()
    found = batch.read_namespaced_job("j", "default")
    assert found.status.conditions[-1].type == "Failed"
    assert cluster.job("j")["status"]["startTime"] == cluster.clock.timestamp()


@pytest.mark.parametrize("exit_code", [0, 1, 64])
def test_a_job_that_ends_as_soon_as_it_is_admitted_has_a_start_time(
    cluster: Cluster, batch: client.BatchV1Api, exit_code: int
) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(exit_code))
    batch.create_namespaced_job("default", queued_job())
    cluster.settle()
    cluster.advance(10)
    cluster.kueue.admit("j")
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert job.status.conditions[-1].type in ("Complete", "Failed")
    assert cluster.job("j")["status"]["startTime"] == cluster.clock.timestamp()


def test_nobody_but_kueue_starts_a_job_of_a_queue(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", queued_job())
    cluster.settle()
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    cluster.settle()
    assert batch.read_namespaced_job("j", "default").spec.suspend
    assert cluster.pods("j") == []


def test_a_queue_must_be_there(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", queued_job("missing"))
    cluster.settle()
    reserved = conditions_by_type(cluster.kueue.find_workload("j") or {})["QuotaReserved"]
    assert (reserved["reason"], reserved["message"]) == ("Inadmissible", "LocalQueue missing doesn't exist")


def test_a_workload_ends_and_goes_with_its_job(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kueue.admits_all = True
    cluster.kubelet.on_start(None, behaviours.exit_with(0))
    batch.create_namespaced_job("default", queued_job())
    cluster.settle()
    finished = conditions_by_type(cluster.kueue.find_workload("j") or {})["Finished"]
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    batch.delete_namespaced_job("j", "default", propagation_policy="Background")
    cluster.settle()
    assert cluster.kueue.find_workload("j") is None


def test_other_jobs_are_none_of_its_business(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    assert len(cluster.pods("j")) == 2
    assert cluster.kueue.find_workload("j") is None
