"""Fixtures: a cluster, fake or real, and a service that runs its jobs there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from tests.kubernetes.clusters import FAKE, KINDS, AnyCluster, MakeCluster
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.real.cluster import RealCluster
from tests.kubernetes.real.connection import Connection
from tests.kubernetes.real.server import find_kubeconfig, use_server
from tests.service.launchers.kubernetes.rights import list_rights
from tests.service.launchers.kubernetes.scene import Scene, make_scene, stop_service

CLAIMS = ("runs", "clicks")


@pytest.fixture(scope="module", params=["sqlite"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of database. What a launcher does depends on it in the tests of interruptions alone, which take both."""
    return request.param


@pytest.fixture(scope="session")
def real_server() -> Iterator[Connection]:
    """Real API server that DLRM_TEST_KUBECONFIG names, for one test process at a time."""
    path = find_kubeconfig()
    assert path is not None, "without it no test runs on a real server"
    with use_server(path) as connection:
        yield connection


@pytest.fixture(params=KINDS)
def make_cluster(request: pytest.FixtureRequest) -> Iterator[MakeCluster]:
    """Make clusters for a test, in which an administrator has done his part; they are stopped at its end."""
    made: list[AnyCluster] = []

    def make(**options: Any) -> AnyCluster:
        if request.param == FAKE:
            cluster = Cluster(**options)
        else:
            cluster = RealCluster(request.getfixturevalue("real_server"), **options)
        made.append(cluster)
        prepare(cluster)
        if isinstance(cluster, RealCluster):
            # Not as an administrator: what the manifests grant has to be enough for every scenario.
            cluster.enforce_rbac(list_rights("overlays/production" if options.get("has_kueue") else "overlays/local"))
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> AnyCluster:
    return make_cluster()


@pytest.fixture
def scene(
    cluster: AnyCluster,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Scene]:
    """Scene with the options of the launcher that the test gives as its parameter."""
    made = make_scene(cluster, settings, tmp_path, monkeypatch, **getattr(request, "param", {}))
    yield made
    stop_service(made)


def prepare(cluster: AnyCluster) -> None:
    """Put into a cluster what an administrator does: claims, credentials and the worker's account."""
    for claim in CLAIMS:
        cluster.add_claim(claim)
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dlrm-worker"}})
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "buckets"}, "data": {}})
