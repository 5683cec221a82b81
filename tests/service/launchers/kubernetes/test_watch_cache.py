"""Copy of the objects of one kind: it goes on from where its watch has ended, and begins anew where it cannot."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.launchers.kubernetes.api import connect
from service.launchers.kubernetes.watch_cache import WatchCache
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.faults import DropWatch, ExpireWatch
from tests.kubernetes.fake.resources import PODS, SECRETS
from tests.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.WATCH_SECONDS", 1)
    with Cluster() as made:
        monkeypatch.setenv("KUBECONFIG", str(made.write_kubeconfig(tmp_path / "kubeconfig")))
        yield made


@pytest.fixture
def cache(cluster: Cluster) -> Iterator[WatchCache]:
    api, namespace = connect(None)
    made = WatchCache(api, f"/api/v1/namespaces/{namespace}/secrets", {}, lambda _: None, lambda: None)
    yield made
    made.stop()


def list_versions(cluster: Cluster) -> list[int]:
    """List the versions from which the watches so far have begun."""
    return [int(one.call.query["resourceVersion"]) for one in cluster.recorder.requests("watch", "secrets")]


def test_a_watch_that_ends_goes_on_from_its_bookmark(cluster: Cluster, cache: WatchCache) -> None:
    cache.start()
    wait_until(lambda: list_versions(cluster))
    cluster.api.create(PODS, "default", {"metadata": {"name": "of another kind"}, "spec": {}})
    wait_until(lambda: cluster.store.revision in list_versions(cluster))
    assert (len(cluster.recorder.requests("list", "secrets")), cache.list_all()) == (1, [])


@pytest.mark.parametrize(("fault", "num_lists"), [(DropWatch(1), 1), (ExpireWatch(1), 2)])
def test_only_a_version_that_is_forgotten_has_all_listed_again(
    cluster: Cluster, cache: WatchCache, fault: DropWatch | ExpireWatch, num_lists: int
) -> None:
    cluster.faults.inject(fault, "watch", "secrets")
    cache.start()
    wait_until(lambda: list_versions(cluster))
    for name in ("a", "b"):
        cluster.api.create(SECRETS, "default", {"metadata": {"name": name}})
    wait_until(lambda: len(cache.list_all()) == 2)
    assert len(cluster.recorder.requests("list", "secrets")) == num_lists


def test_a_watch_that_was_stopped_says_nothing_of_its_broken_connection(cluster: Cluster, cache: WatchCache) -> None:
    cache.start()
    wait_until(lambda: list_versions(cluster))
    with capture_logs() as lines:
        cache.stop()
        cluster.server.stop_listening()
        cache._thread.join(PATIENCE_SECONDS)
    assert (cache._thread.is_alive(), lines) == (False, [])
