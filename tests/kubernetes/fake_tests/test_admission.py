"""Admission: service accounts, limits, quotas and pod security."""

from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.manifests import make_job, make_pod


def test_pods_have_a_token_and_default_tolerations(core: client.CoreV1Api) -> None:
    spec = core.create_namespaced_pod("default", make_pod()).spec
    assert spec.service_account_name == "default"
    assert spec.volumes[0].name.startswith("kube-api-access-")
    assert spec.containers[0].volume_mounts[0].mount_path == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert {(one.key, one.toleration_seconds) for one in spec.tolerations} == {
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    }
    spec = core.create_namespaced_pod("default", make_pod("q", automountServiceAccountToken=False)).spec
    assert spec.volumes is None


def test_a_service_account_must_be_there(core: client.CoreV1Api) -> None:
    status = refuse(lambda: core.create_namespaced_pod("default", make_pod(serviceAccountName="missing")))
    assert status["message"] == (
        'pods "p" is forbidden: error looking up service account default/missing: serviceaccount "missing" not found'
    )


def test_a_quota_wants_what_it_counts_to_be_said(core: client.CoreV1Api) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1", "limits.memory": "1Gi"}}}
    core.create_namespaced_resource_quota("default", quota)
    status = refuse(lambda: core.create_namespaced_pod("default", make_pod()))
    assert status["message"] == 'pods "p" is forbidden: failed quota: q: must specify limits.memory for: main'


def test_a_quota_may_count_objects(core: client.CoreV1Api, batch: client.BatchV1Api) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": "1"}}}
    core.create_namespaced_resource_quota("default", quota)
    batch.create_namespaced_job("default", make_job("a"))
    assert refuse(lambda: batch.create_namespaced_job("default", make_job("b")))["message"] == (
        'jobs.batch "b" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, '
        "limited: count/jobs.batch=1"
    )


def test_a_limit_range_fills_in_and_bounds(core: client.CoreV1Api) -> None:
    limits = {"type": "Container", "max": {"cpu": "1"}, "defaultRequest": {"memory": "1Gi"}}
    core.create_namespaced_limit_range("default", {"metadata": {"name": "l"}, "spec": {"limits": [limits]}})
    resources = core.create_namespaced_pod("default", make_pod()).spec.containers[0].resources
    assert (resources.limits, resources.requests) == ({"cpu": "1"}, {"cpu": "100m", "memory": "1Gi"})
    container = {"name": "main", "image": "x:1", "resources": {"limits": {"cpu": "2"}}}
    status = refuse(lambda: core.create_namespaced_pod("default", make_pod("q", containers=[container])))
    assert status["message"] == 'pods "q" is forbidden: maximum cpu usage per Container is 1, but limit is 2'


def test_a_restricted_namespace_refuses_what_is_not_hardened(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.add_namespace("safe", {"pod-security.kubernetes.io/enforce": "restricted"})
    status = refuse(lambda: core.create_namespaced_pod("safe", make_pod()))
    assert status["message"] == (
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
        '(container "main" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities '
        '(container "main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container '
        '"main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set '
        'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
    )
    hardened = make_pod(securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}})
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    hardened["spec"]["containers"][0]["securityContext"] = context
    core.create_namespaced_pod("safe", hardened)


def test_a_job_in_a_restricted_namespace_is_warned_and_its_pods_are_refused(
    cluster: Cluster, core: client.CoreV1Api
) -> None:
    cluster.add_namespace("safe", {"pod-security.kubernetes.io/enforce": "restricted"})
    answer = send(cluster, "POST", "/apis/batch/v1/namespaces/safe/jobs", make_job())
    assert answer.status == 201
    assert "would violate PodSecurity" in answer.headers["Warning"]
    cluster.settle()
    reasons = [one.reason for one in core.list_namespaced_event("safe").items]
    assert reasons == ["FailedCreate"]
