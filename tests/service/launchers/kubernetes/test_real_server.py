"""A service and its manifests in front of a real API server, with nothing in between."""

from pathlib import Path
from typing import Any

import pytest

from service.jobs import actions
from service.settings import Settings
from tests.deploy.rendering import OVERLAYS, find_pod_templates, render
from tests.kubernetes.clusters import REAL, MakeCluster
from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import PODS, SECRETS, SERVICES
from tests.kubernetes.real.api import make_path
from tests.kubernetes.real.cluster import RealCluster
from tests.kubernetes.real.server import VARIABLE, find_kubeconfig
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.rights import list_rights, move_right
from tests.service.launchers.kubernetes.scene import DONE, Scene, end_when_asked, leave, make_scene, stop_service

Object = dict[str, Any]

pytestmark = [
    pytest.mark.skipif(find_kubeconfig() is None, reason=f"{VARIABLE} names no API server"),
    pytest.mark.parametrize("make_cluster", [REAL], indirect=True),
]
INSTALLED_APART = ("ServiceMonitor", "PrometheusRule", "LocalQueue", "ClusterQueue", "ResourceFlavor", "Namespace")
"""Kinds of operators, which a bare server does not know; and the namespace, in whose place is that of the test."""


def test_the_token_of_its_account_is_all_that_a_service_needs(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(num_nodes=2)
    assert isinstance(cluster, RealCluster)
    cluster.connect_directly([move_right(right, cluster.namespace) for right in list_rights("overlays/local")])
    scene = make_scene(cluster, settings, tmp_path, monkeypatch)
    try:
        run_jobs(scene)
    finally:
        stop_service(scene)
    assert cluster.account is not None
    for resource, namespace in ((SECRETS, cluster.namespace), (PODS, "kube-system"), (SERVICES, cluster.namespace)):
        with pytest.raises(ApiError, match=f"{resource.plural} is forbidden"):
            cluster.account.request("GET", make_path(resource, namespace))


def run_jobs(scene: Scene) -> None:
    """Have one job succeed, and one on two nodes be stopped."""
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.wait_for(scene.submit(), "SUCCEEDED")
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    stopped = scene.submit(resources={"nodes": 2})
    scene.wait_for(stopped, "RUNNING")
    scene.services.jobs.change(stopped, USER, actions.cancel)
    scene.wait_for(stopped, "CANCELLED")
    scene.wait_until_empty()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_all_manifests_are_accepted(make_cluster: MakeCluster, overlay: str) -> None:
    """They are checked as strictly as the server can, and the pods by Pod Security `restricted`; nothing is stored."""
    cluster = make_cluster(num_nodes=0)
    accounts = [found for found in render(f"overlays/{overlay}") if found["kind"] == "ServiceAccount"]
    for found in accounts:
        if found["metadata"]["name"] != "dlrm-worker":
            cluster.apply(move_right(found, cluster.namespace))
    rest = [
        found for found in render(f"overlays/{overlay}") if found["kind"] not in ("ServiceAccount", *INSTALLED_APART)
    ]
    templates = find_pod_templates(rest)
    assert templates
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": template["spec"]}
        for number, template in enumerate(templates)
    ]
    for manifest in [*rest, *pods]:
        try_out(cluster, manifest)


def try_out(cluster: RealCluster, manifest: Object) -> None:
    """Have the server check a manifest. Raises ApiError."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    resources = cluster.api.connection.request("GET", root)["resources"]
    resource = next(one for one in resources if one["kind"] == manifest["kind"] and "/" not in one["name"])
    place = f"{root}/namespaces/{cluster.namespace}" if resource["namespaced"] else root
    moved = {**manifest, "metadata": {**manifest["metadata"], "namespace": cluster.namespace}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    cluster.api.connection.request("POST", f"{place}/{resource['name']}", query, moved)
