"""What the service may do in a cluster, and which pods may reach which."""

from typing import Any

import pytest

from tests.deploy.rendering import OVERLAYS, ROOT, find_objects, render

Object = dict[str, Any]
ALLOWED = {
    ("batch", "jobs"): {"create", "list", "watch", "delete"},
    ("", "pods"): {"list", "watch", "delete"},
    ("", "secrets"): {"create", "patch", "delete"},
    ("", "services"): {"create", "patch", "delete"},
    ("", "events"): {"list", "watch"},
    ("", "resourcequotas"): {"list", "watch"},
}
"""Verbs that the service needs in its namespace, by group and resource."""
OF_KUEUE = {("kueue.x-k8s.io", "workloads"): {"list", "watch"}}
OF_NODES = {("", "nodes"): {"list", "watch"}}
SERVICE, WORKER = (
    {"app.kubernetes.io/name": "dlrm", "app.kubernetes.io/component": component} for component in ("service", "worker")
)


def sum_rules(roles: list[Object]) -> dict[tuple[str, str], set[str]]:
    allowed: dict[tuple[str, str], set[str]] = {}
    for role in roles:
        for rule in role["rules"]:
            assert set(rule) == {"apiGroups", "resources", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    allowed.setdefault((group, resource), set()).update(rule["verbs"])
    return allowed


@pytest.mark.parametrize(
    ("name", "expected"), [("local", ALLOWED), ("production", {**ALLOWED, **OF_KUEUE})], ids=OVERLAYS
)
def test_the_service_may_do_what_its_launcher_does_and_no_more(
    name: str, expected: dict[tuple[str, str], set[str]]
) -> None:
    objects = render(f"overlays/{name}")
    assert sum_rules(list(find_objects(objects, "Role").values())) == expected


def test_only_one_component_asks_for_a_right_in_the_whole_cluster() -> None:
    roles = {name: list(find_objects(render(f"overlays/{name}"), "ClusterRole").values()) for name in OVERLAYS}
    assert sum_rules(roles["local"]) == OF_NODES
    assert roles["production"] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_rights_are_those_of_the_service_alone(name: str) -> None:
    objects = render(f"overlays/{name}")
    bindings = [found for found in objects if found["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "dlrm", "namespace": "dlrm"}]
        assert binding["roleRef"]["name"] in find_objects(objects, binding["roleRef"]["kind"])
    for account in find_objects(objects, "ServiceAccount").values():
        assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("group", "resource"), [*ALLOWED, *OF_KUEUE, *OF_NODES])
def test_the_documents_say_what_a_right_is_for(group: str, resource: str) -> None:
    verbs = {**ALLOWED, **OF_KUEUE, **OF_NODES}[group, resource]
    rows = [line.split("|") for line in (ROOT / "docs/kubernetes.md").read_text().splitlines() if line.startswith("|")]
    told = [row[2] for row in rows if row[1].strip() == f"`{resource}`"]
    assert told, resource
    assert {verb.strip() for verb in told[0].split(",")} == verbs


@pytest.mark.parametrize("name", OVERLAYS)
def test_nothing_is_reached_unless_a_policy_says_so(name: str) -> None:
    policies = find_objects(render(f"overlays/{name}"), "NetworkPolicy")
    denied = policies["deny-all"]["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in policies.values():
        for kind in ("ingress", "egress"):
            assert (kind not in policy["spec"]) or kind.capitalize() in policy["spec"]["policyTypes"]
            for rule in policy["spec"].get(kind, []):
                # Neither everything from everywhere, nor everything to everywhere.
                assert set(rule)


@pytest.mark.parametrize("name", OVERLAYS)
def test_workers_reach_each_other_and_the_service_and_are_reached_by_workers_alone(name: str) -> None:
    objects = render(f"overlays/{name}")
    policies = [policy["spec"] for policy in find_objects(objects, "NetworkPolicy").values()]
    of_workers = [policy for policy in policies if policy["podSelector"].get("matchLabels") == WORKER]
    (worker,) = of_workers
    assert worker["ingress"] == [{"from": [{"podSelector": {"matchLabels": WORKER}}]}]
    assert {"to": [{"podSelector": {"matchLabels": WORKER}}]} in worker["egress"]
    assert {
        "ports": [{"protocol": "TCP", "port": 8080}],
        "to": [{"podSelector": {"matchLabels": SERVICE}}],
    } in worker["egress"]
    service = find_objects(objects, "NetworkPolicy")["service"]["spec"]
    assert service["podSelector"]["matchLabels"] == SERVICE
    assert {
        "ports": [{"protocol": "TCP", "port": 8080}],
        "from": [{"podSelector": {"matchLabels": WORKER}}],
    } in service["ingress"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_policy_opens_the_port_of_the_servers_that_hand_out_rights_of_a_node(name: str) -> None:
    for policy in find_objects(render(f"overlays/{name}"), "NetworkPolicy").values():
        for rule in policy["spec"].get("egress", []):
            assert "to" in rule or all(port["port"] != 80 for port in rule["ports"])
