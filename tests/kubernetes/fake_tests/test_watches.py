"""Watches of the fake cluster tell what those of a real one tell."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from kubernetes import client, watch

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake_tests.manifests import make_pod


def config_map(name: str, **labels: str) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"metadata": {"name": name, "labels": labels}, "data": {"k": "1"}}


def stream(cluster: Cluster, path: str) -> Iterator[dict[str, Any]]:
    """Start a watch, and return its events as they come over the wire."""
    headers = {"Authorization": f"Bearer {cluster.server.token}"}
    answer = urllib3.request("GET", cluster.url + path, headers=headers, preload_content=False, retries=False)
    assert answer.status == 200
    return read(answer)


def read(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of an answer."""
    rest = b""
    for piece in answer.stream(amt=None):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)


def take(events: Iterator[dict[str, Any]], number: int) -> list[tuple[str, str]]:
    """Return type and name of the next events."""
    taken = itertools.islice(events, number)
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in taken]


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps?watch=true"


def test_a_watch_from_a_list_tells_what_came_after_it(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    listed = core.list_namespaced_config_map("default")
    core.create_namespaced_config_map("default", config_map("b"))
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    core.delete_namespaced_config_map("b", "default")

    told = []
    watcher = watch.Watch()
    version = listed.metadata.resource_version
    for event in watcher.stream(core.list_namespaced_config_map, "default", resource_version=version):
        told.append((event["type"], event["object"].metadata.name))
        if len(told) == 3:
            watcher.stop()
    assert told == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_a_watch_from_nowhere_begins_with_all_there_is(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    events = stream(cluster, CONFIG_MAPS)
    assert take(events, 2) == [("ADDED", "a"), ("ADDED", "kube-root-ca.crt")]
    core.create_namespaced_config_map("default", config_map("b"))
    assert take(events, 1) == [("ADDED", "b")]


def test_a_watch_ends_when_its_time_is_over(core: client.CoreV1Api) -> None:
    watcher = watch.Watch()
    assert [
        event["object"].metadata.name
        for event in watcher.stream(core.list_namespaced_pod, "default", timeout_seconds=1)
    ] == []


def test_an_object_that_enters_or_leaves_the_selection_is_added_or_deleted(
    cluster: Cluster, core: client.CoreV1Api
) -> None:
    core.create_namespaced_config_map("default", config_map("a", app="x"))
    events = stream(cluster, f"{CONFIG_MAPS}&labelSelector=app%3Dx")
    assert take(events, 1) == [("ADDED", "a")]
    core.create_namespaced_config_map("default", config_map("b", app="y"))
    core.patch_namespaced_config_map("b", "default", {"metadata": {"labels": {"app": "x"}}})
    left = core.patch_namespaced_config_map("a", "default", {"metadata": {"labels": {"app": "z"}}})
    assert take(events, 1) == [("ADDED", "b")]
    deleted = next(events)
    assert deleted["type"] == "DELETED"
    assert deleted["object"]["metadata"]["labels"] == {"app": "x"}, "as it was last selected"
    assert deleted["object"]["metadata"]["resourceVersion"] == left.metadata.resource_version
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    core.patch_namespaced_config_map("b", "default", {"data": {"k": "2"}})
    assert take(events, 1) == [("MODIFIED", "b")], "what is not selected is not told"


def test_a_watch_of_one_object_selects_it_by_its_name(cluster: Cluster, core: client.CoreV1Api) -> None:
    events = stream(cluster, f"{CONFIG_MAPS}&fieldSelector=metadata.name%3Db")
    core.create_namespaced_config_map("default", config_map("a"))
    core.create_namespaced_config_map("default", config_map("b"))
    assert take(events, 1) == [("ADDED", "b")]


def test_a_version_that_history_has_forgotten_is_told_in_the_stream(cluster: Cluster, core: client.CoreV1Api) -> None:
    listed = core.list_namespaced_config_map("default")
    cluster.store.compact()
    event = next(stream(cluster, f"{CONFIG_MAPS}&resourceVersion={listed.metadata.resource_version}"))
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: ")

    watcher = watch.Watch()
    with pytest.raises(client.ApiException) as caught:
        for _ in watcher.stream(core.list_namespaced_config_map, "default", resource_version="1", timeout_seconds=9):
            pass
    assert caught.value.status == 410


def test_a_history_that_is_full_forgets_its_beginning() -> None:
    with Cluster(history_length=3) as cluster:
        core = client.CoreV1Api(cluster.api_client())
        version = core.list_namespaced_config_map("default").metadata.resource_version
        for name in "abc":
            core.create_namespaced_config_map("default", config_map(name))
        path = f"{CONFIG_MAPS}&resourceVersion={version}"
        assert take(stream(cluster, path), 3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        core.create_namespaced_config_map("default", config_map("d"))
        assert next(stream(cluster, path))["type"] == "ERROR"


def test_a_running_watch_survives_that_history_is_forgotten(cluster: Cluster, core: client.CoreV1Api) -> None:
    events = stream(cluster, CONFIG_MAPS)
    take(events, 1)
    core.create_namespaced_config_map("default", config_map("a"))
    cluster.store.compact()
    core.create_namespaced_config_map("default", config_map("b"))
    assert take(events, 2) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_from_nowhere_that_allows_bookmarks_is_told_where_the_beginning_ends(cluster: Cluster) -> None:
    events = stream(cluster, f"{CONFIG_MAPS}&allowWatchBookmarks=true")
    assert take(events, 1) == [("ADDED", "kube-root-ca.crt")]
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_bookmarks_come_to_those_who_allow_them(cluster: Cluster, core: client.CoreV1Api) -> None:
    version = core.list_namespaced_pod("default").metadata.resource_version
    path = f"/api/v1/namespaces/default/pods?watch=true&resourceVersion={version}"
    with_marks, without = stream(cluster, f"{path}&allowWatchBookmarks=true"), stream(cluster, path)
    other = core.create_namespaced_config_map("default", config_map("elsewhere"))
    cluster.server.send_bookmarks()
    mark = next(with_marks)["object"]
    assert mark["metadata"] == {"resourceVersion": other.metadata.resource_version}
    assert mark["spec"] == {"containers": None}, "a bookmark is an object without a name"
    core.create_namespaced_pod("default", make_pod())
    assert take(with_marks, 1) == take(without, 1) == [("ADDED", "p")]


def test_a_list_can_be_streamed(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    wanted = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = stream(cluster, f"{CONFIG_MAPS}&{wanted}")
    assert take(events, 3) == [("ADDED", "a"), ("ADDED", "kube-root-ca.crt"), ("BOOKMARK", "")]


def test_the_server_ends_watches_when_it_likes(cluster: Cluster) -> None:
    events = stream(cluster, CONFIG_MAPS)
    take(events, 1)
    cluster.server.end_watches()
    assert list(events) == []


def test_a_pod_that_is_deleted_at_once_is_told_twice(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    events = stream(cluster, "/api/v1/namespaces/default/pods?watch=true")
    core.delete_namespaced_pod("p", "default")
    first, second, third = itertools.islice(events, 3)
    assert [first["type"], second["type"], third["type"]] == ["ADDED", "MODIFIED", "DELETED"]
    assert second["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
    assert third["object"]["metadata"]["deletionTimestamp"]
