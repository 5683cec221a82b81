"""Deletion: grace, finalizers, dependents and namespaces."""

import json

import pytest
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake.resources import CONFIG_MAPS, SERVICES
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.manifests import make_job, make_pod


def test_a_deleted_object_answers_with_success(cluster: Cluster, core: client.CoreV1Api) -> None:
    created = core.create_namespaced_config_map("default", {"metadata": {"name": "a"}})
    answer = send(cluster, "DELETE", "/api/v1/namespaces/default/configmaps/a").json()
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": created.metadata.uid}


def test_an_object_with_a_finalizer_waits_for_it(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "a", "finalizers": ["example.org/hold"]}})
    core.delete_namespaced_config_map("a", "default")
    cluster.settle()
    waiting = core.read_namespaced_config_map("a", "default").metadata
    assert waiting.deletion_timestamp
    patch = {"metadata": {"finalizers": ["example.org/hold", "example.org/more"]}}
    status = refuse(lambda: core.patch_namespaced_config_map("a", "default", patch))
    assert "no new finalizers can be added if the object is being deleted" in status["message"]
    core.patch_namespaced_config_map("a", "default", [{"op": "remove", "path": "/metadata/finalizers"}])
    assert refuse(lambda: core.read_namespaced_config_map("a", "default"))["code"] == 404


def test_a_running_pod_stays_until_its_containers_have_ended(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    core.create_namespaced_pod("default", make_pod(terminationGracePeriodSeconds=20))
    cluster.settle()
    deleted = core.delete_namespaced_pod("p", "default")
    assert deleted.metadata.deletion_grace_period_seconds == 20
    cluster.advance(19)
    pod = core.read_namespaced_pod("p", "default")
    assert pod.status.phase == "Running"
    assert pod.metadata.deletion_timestamp
    cluster.advance(1)
    assert refuse(lambda: core.read_namespaced_pod("p", "default"))["code"] == 404


def test_a_pod_that_ends_on_sigterm_goes_at_once(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    core.patch_namespaced_pod("p", "default", {"metadata": {"finalizers": ["example.org/hold"]}})
    cluster.settle()
    core.delete_namespaced_pod("p", "default")
    cluster.settle()
    pod = core.read_namespaced_pod("p", "default")
    assert pod.status.phase == "Failed"
    assert pod.status.container_statuses[0].state.terminated.exit_code == 143
    assert pod.metadata.deletion_grace_period_seconds == 0


def test_a_second_deletion_only_shortens_the_grace(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    first = core.delete_namespaced_pod("p", "default", grace_period_seconds=10)
    longer = core.delete_namespaced_pod("p", "default", grace_period_seconds=60)
    assert longer.metadata.deletion_timestamp == first.metadata.deletion_timestamp
    shorter = core.delete_namespaced_pod("p", "default", grace_period_seconds=5)
    assert (first.metadata.deletion_timestamp - shorter.metadata.deletion_timestamp).total_seconds() == 5


def test_a_pod_is_removed_by_force_even_if_it_still_runs(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    assert refuse(lambda: core.read_namespaced_pod("p", "default"))["code"] == 404


def test_a_precondition_protects_a_successor_of_the_same_name(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "a"}})
    body = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    status = refuse(lambda: core.delete_namespaced_config_map("a", "default", body=body))
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition')


def test_jobs_leave_their_pods_behind_unless_told_otherwise(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    answer = send(cluster, "DELETE", "/apis/batch/v1/namespaces/default/jobs/j")
    assert answer.headers["Warning"].startswith('299 - "child pods are preserved by default when jobs are deleted')
    assert answer.json()["metadata"]["finalizers"] == ["orphan"]
    cluster.settle()
    assert refuse(lambda: batch.read_namespaced_job("j", "default"))["code"] == 404
    assert len(cluster.pods("j")) == 2
    assert all("ownerReferences" not in pod["metadata"] for pod in cluster.pods("j"))
    assert all("finalizers" not in pod["metadata"] for pod in cluster.pods("j"))


def test_in_the_background_pods_go_after_their_job(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    batch.delete_namespaced_job("j", "default", propagation_policy="Background")
    assert refuse(lambda: batch.read_namespaced_job("j", "default"))["code"] == 404
    cluster.settle()
    assert len(cluster.pods("j")) == 2
    cluster.advance(30)
    assert cluster.pods("j") == []


def test_in_the_foreground_a_job_waits_for_its_pods(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    batch.delete_namespaced_job("j", "default", propagation_policy="Foreground")
    cluster.settle()
    assert batch.read_namespaced_job("j", "default").metadata.finalizers == ["foregroundDeletion"]
    cluster.advance(30)
    assert refuse(lambda: batch.read_namespaced_job("j", "default"))["code"] == 404
    assert cluster.pods("j") == []


def test_what_a_job_owns_goes_with_it(cluster: Cluster, batch: client.BatchV1Api, core: client.CoreV1Api) -> None:
    job = batch.create_namespaced_job("default", make_job(suspend=True))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.metadata.uid}
    core.create_namespaced_config_map("default", {"metadata": {"name": "a", "ownerReferences": [owner]}})
    service = {"metadata": {"name": "s", "ownerReferences": [owner]}, "spec": {"clusterIP": "None"}}
    core.create_namespaced_service("default", service)
    cluster.settle()
    batch.delete_namespaced_job("j", "default", propagation_policy="Background")
    cluster.settle()
    assert cluster.api.find(CONFIG_MAPS, "default", "a") is None
    assert cluster.api.find(SERVICES, "default", "s") is None


@pytest.mark.parametrize("uid", ["00000000-0000-4000-8000-000000000000"])
def test_what_belongs_to_nobody_is_collected(cluster: Cluster, core: client.CoreV1Api, uid: str) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": uid}
    core.create_namespaced_config_map("default", {"metadata": {"name": "a", "ownerReferences": [owner]}})
    cluster.settle()
    assert refuse(lambda: core.read_namespaced_config_map("a", "default"))["code"] == 404


def test_a_collection_is_deleted_by_its_labels(cluster: Cluster, core: client.CoreV1Api) -> None:
    for name, app in {"a": "x", "b": "x", "c": "y"}.items():
        core.create_namespaced_config_map("default", {"metadata": {"name": name, "labels": {"app": app}}})
    core.delete_collection_namespaced_config_map("default", label_selector="app=x")
    assert cluster.api.find(CONFIG_MAPS, "default", "a") is None
    assert cluster.api.find(CONFIG_MAPS, "default", "c") is not None
    assert ("", "configmaps", "deletecollection") in cluster.list_permissions_used()


def test_nothing_is_created_in_a_namespace_that_ends(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    cluster.add_namespace("team")
    core.create_namespaced_config_map("team", {"metadata": {"name": "hold", "finalizers": ["example.org/hold"]}})
    core.delete_namespace("team")
    cluster.settle()
    with pytest.raises(client.ApiException) as caught:
        batch.create_namespaced_job("team", make_job())
    status = json.loads(caught.value.body)
    assert status["code"] == 403
    assert status["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]
    remaining = {one.type: one.message for one in core.read_namespace("team").status.conditions}
    assert (
        remaining["NamespaceContentRemaining"] == "Some resources are remaining: configmaps. has 1 resource instances"
    )
    core.patch_namespaced_config_map("hold", "team", [{"op": "remove", "path": "/metadata/finalizers"}])
    cluster.settle()
    assert refuse(lambda: core.read_namespace("team"))["code"] == 404
