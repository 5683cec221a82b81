"""Rights of the service in a cluster: those of the manifests are what it uses, no more and no less."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.jobs import actions
from service.settings import Settings
from tests.kubernetes.clusters import MakeCluster
from tests.kubernetes.fake.faults import Answer, LoseAnswer
from tests.kubernetes.played.behaviours import run
from tests.kubernetes.real.cluster import RealCluster
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.rights import list_rights, move_right
from tests.service.launchers.kubernetes.scene import DONE, Scene, end_when_asked, leave, make_scene, stop_service

Object = dict[str, Any]
Permissions = set[tuple[str, str, str]]

LACKS_NODES = 'nodes is forbidden: User "dlrm" cannot list resource "nodes" in API group "" at the cluster scope'
QUOTAS = {("", "resourcequotas", "list"), ("", "resourcequotas", "watch")}
"""Rights for the capacity of a namespace, which are needed where neither nodes nor a queue tell."""


def list_granted(rights: list[Object]) -> Permissions:
    return {
        (group, resource, verb)
        for right in rights
        for rule in right.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@contextmanager
def use_rights(
    rights: list[Object],
    make_cluster: MakeCluster,
    settings: Settings,
    directory: Path,
    patch: pytest.MonkeyPatch,
    **options: Any,
) -> Generator[Scene]:
    """Make a scene whose service has `rights` alone."""
    cluster = make_cluster(num_nodes=2, has_kueue=bool(options))
    if isinstance(cluster, RealCluster):
        cluster.enforce_rbac([move_right(right, cluster.namespace) for right in rights])
    if ("", "nodes", "list") not in list_granted(rights):
        cluster.faults.inject(Answer(403, "Forbidden", LACKS_NODES), verb="list", resource="nodes", times=None)
    scene = make_scene(cluster, settings, directory, patch, **options)
    try:
        yield scene
    finally:
        stop_service(scene)


def use_everything(scene: Scene) -> Permissions:
    """Have jobs succeed, be stopped, and be found after a lost answer; return the rights that were used."""
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    first = scene.submit()
    scene.wait(first, lambda job: job.reason == "quota_exceeded" or job.state == "SUCCEEDED")
    scene.cluster.kueue.admits_all = True
    scene.wait_for(first, "SUCCEEDED")
    scene.cluster.kubelet.on_start(behaviour=run(), times=1)
    killed = scene.submit()
    scene.wait_for(killed, "RUNNING")
    scene.cluster.kubelet.on_start(behaviour=end_when_asked(), times=2)
    stopped = scene.submit(resources={"nodes": 2})
    scene.wait_for(stopped, "RUNNING")
    for job_id in (killed, stopped):
        scene.services.jobs.change(job_id, USER, actions.cancel)
        scene.wait_for(job_id, "CANCELLED")
    for resource in ("jobs", "services"):
        # What may have been created is looked up.
        scene.cluster.faults.inject(LoseAnswer(), verb="create", resource=resource)
        scene.wait_for(scene.submit(resources={"nodes": 2}), "SUCCEEDED")
    scene.wait_until_empty()
    return scene.cluster.recorder.list_permissions()


@pytest.mark.slow
def test_all_rights_of_the_local_overlay_are_used(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = list_rights("overlays/local")
    with use_rights(rights, make_cluster, settings, tmp_path, monkeypatch) as scene:
        assert use_everything(scene) == list_granted(rights) - QUOTAS


def test_all_rights_of_production_are_used(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = list_rights("overlays/production")
    with use_rights(rights, make_cluster, settings, tmp_path, monkeypatch, queue_name="dlrm") as scene:
        assert use_everything(scene) == list_granted(rights) - QUOTAS


def test_all_rights_of_the_base_are_used_without_nodes_and_queues(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights = list_rights("base")
    with use_rights(rights, make_cluster, settings, tmp_path, monkeypatch) as scene:
        assert use_everything(scene) == list_granted(rights)
