"""Fixtures: a fake cluster, and a service that runs its jobs there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import Settings
from tests.kubernetes.fake.cluster import Cluster
from tests.service.launchers.kubernetes.scene import Scene, make_scene, stop_service

CLAIMS = ("runs", "clicks")


@pytest.fixture(scope="module", params=["sqlite"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of database. What a launcher does depends on it in the tests of interruptions alone, which take both."""
    return request.param


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    fake = prepare(Cluster())
    yield fake
    fake.stop()


@pytest.fixture
def scene(cluster: Cluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = make_scene(cluster, settings, tmp_path, monkeypatch)
    yield made
    stop_service(made)


def prepare(fake: Cluster) -> Cluster:
    """Put into a cluster what an administrator does: claims, credentials and the worker's account."""
    for claim in CLAIMS:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        fake.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": spec})
    fake.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dlrm-worker"}})
    fake.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "buckets"}, "data": {}})
    return fake
