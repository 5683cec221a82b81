"""Permissions: what was asked for, and what rules allow."""

from pathlib import Path

import yaml
from kubernetes import client, config

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.manifests import make_job, make_pod
from tests.kubernetes.fake_tests.test_watches import stream, take

USER = "system:serviceaccount:dlrm-system:dlrm-service"


def role(kind: str, name: str, *rules: dict, namespace: str = "default") -> dict:
    """Return a Role or ClusterRole."""
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": list(rules)}


def rule(groups: list[str], resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict:
    """Return a rule."""
    return {"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names or []}


def test_requests_are_recorded_as_rules_count_them(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    batch.create_namespaced_job("default", make_job(suspend=True))
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    batch.read_namespaced_job_status("j", "default")
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    core.list_pod_for_all_namespaces()
    core.read_namespaced_pod_log("p", "default")
    take(stream(cluster, "/api/v1/pods?watch=true"), 1)
    core.delete_namespaced_pod("p", "default")
    client.VersionApi(cluster.api_client()).get_code()
    assert cluster.list_permissions_used() == {
        ("batch", "jobs", "create"),
        ("batch", "jobs", "patch"),
        ("batch", "jobs/status", "get"),
        ("", "pods", "create"),
        ("", "pods", "list"),
        ("", "pods/log", "get"),
        ("", "pods", "watch"),
        ("", "pods", "delete"),
    }
    (created,) = cluster.recorder.requests("create", "jobs")
    assert (created.status, created.call.namespace) == (201, "default")


def test_without_a_rule_everything_is_forbidden(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    cluster.enforce_rbac([])
    assert refuse(lambda: core.list_namespaced_pod("default")) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'pods is forbidden: User "{USER}" cannot list resource "pods" in API group "" '
        'in the namespace "default"',
        "reason": "Forbidden",
        "details": {"kind": "pods"},
        "code": 403,
    }
    message = refuse(lambda: batch.delete_namespaced_job("j", "default"))["message"]
    assert message.startswith(f'jobs.batch "j" is forbidden: User "{USER}" cannot delete resource "jobs" in API group')
    assert refuse(core.list_node)["message"].endswith("at the cluster scope")
    client.VersionApi(cluster.api_client()).get_code()
    client.BatchV1Api(cluster.api_client()).get_api_resources()


def test_a_role_holds_in_its_namespace(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.add_namespace("team")
    cluster.enforce_rbac([role("Role", "r", rule([""], ["pods", "pods/log"], ["get", "list"]), namespace="team")])
    core.list_namespaced_pod("team")
    assert refuse(lambda: core.list_namespaced_pod("default"))["code"] == 403
    assert refuse(core.list_pod_for_all_namespaces)["code"] == 403
    assert refuse(lambda: core.read_namespaced_pod_log("p", "team"))["code"] == 404
    assert send(cluster, "GET", "/api/v1/namespaces/team/pods?watch=true").status == 403


def test_a_cluster_role_holds_where_it_is_bound(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.add_namespace("team")
    pods = role("ClusterRole", "pods", rule([""], ["pods"], ["list"]))
    nodes = role("ClusterRole", "nodes", rule([""], ["nodes"], ["*"]))
    binding = {
        "kind": "RoleBinding",
        "metadata": {"namespace": "team"},
        "roleRef": {"kind": "ClusterRole", "name": "pods"},
    }
    cluster.enforce_rbac([pods, nodes, binding])
    core.list_namespaced_pod("team")
    core.list_node()
    assert refuse(lambda: core.list_namespaced_pod("default"))["code"] == 403


def test_a_rule_may_name_single_objects(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.enforce_rbac([role("Role", "r", rule([""], ["configmaps"], ["get", "list"], ["a"]))])
    assert refuse(lambda: core.read_namespaced_config_map("a", "default"))["code"] == 404
    assert refuse(lambda: core.read_namespaced_config_map("b", "default"))["code"] == 403
    core.list_namespaced_config_map("default", field_selector="metadata.name=a")
    assert refuse(lambda: core.list_namespaced_config_map("default"))["code"] == 403


def test_a_rule_of_a_resource_is_none_of_its_subresources(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.enforce_rbac([role("Role", "r", rule(["batch"], ["jobs"], ["*"]))])
    batch.read_namespaced_job("j", "default")
    message = refuse(lambda: batch.read_namespaced_job_status("j", "default"))["message"]
    assert 'cannot get resource "jobs/status"' in message


def test_a_user_may_ask_what_it_may_do(cluster: Cluster) -> None:
    cluster.enforce_rbac([role("Role", "r", rule(["batch"], ["jobs"], ["create"]))])
    authorization = client.AuthorizationV1Api(cluster.api_client())

    def may(verb: str) -> bool:
        attributes = {"namespace": "default", "verb": verb, "group": "batch", "resource": "jobs"}
        review = authorization.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
        return review.status.allowed

    assert may("create")
    assert not may("delete")
    assert cluster.list_permissions_used() == set(), "everybody may ask"


def test_a_kubeconfig_leads_to_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    path = cluster.write_kubeconfig(tmp_path / "config", namespace="team")
    api_client = config.new_client_from_config(str(path))
    assert client.CoreV1Api(api_client).list_node().items[0].metadata.name == "node-0"
    assert yaml.safe_load(path.read_text())["contexts"][0]["context"]["namespace"] == "team"
