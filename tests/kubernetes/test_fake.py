"""The fake cluster does what tests of the launcher lean on without looking."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from service.launchers.kubernetes.api import MERGE_PATCH, ApiError, KubernetesApi
from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.faults import Answer, DropRequest, Fault, LoseAnswer
from tests.kubernetes.fake.http_server import TOKEN
from tests.kubernetes.fake.resources import JOBS, PODS, SECRETS, Json
from tests.kubernetes.played.behaviours import Behaviour, exit_with, ignore_sigterm

PATH = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture
def api(cluster: Cluster) -> KubernetesApi:
    configuration = Configuration(host=cluster.url, api_key={"BearerToken": f"Bearer {TOKEN}"})
    configuration.retries = False
    return KubernetesApi(ApiClient(configuration))


def create(api: KubernetesApi, name: str, **labels: str) -> None:
    api.request("POST", PATH, body={"metadata": {"name": name, "labels": labels}})


def watch(api: KubernetesApi, version: str, **query: str) -> Iterator[tuple[str, Any]]:
    """Yield the types and names of events; of bookmarks the types and versions."""
    wanted = {"resourceVersion": version, "timeoutSeconds": "1", "allowWatchBookmarks": "true", **query}
    for event in api.watch(PATH, wanted, 10.0):
        metadata = event["object"]["metadata"]
        yield event["type"], metadata.get("name", metadata["resourceVersion"])


def make_job(cluster: Cluster, num_pods: int) -> None:
    spec: Json = {"containers": [{"name": "trainer", "image": "i"}], "terminationGracePeriodSeconds": 60}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    cluster.api.create(
        JOBS, "default", {"metadata": {"name": "j"}, "spec": {"completions": num_pods, "template": template}}
    )


def list_conditions(cluster: Cluster) -> list[str]:
    return [one["type"] for one in cluster.job("j")["status"].get("conditions", [])]


def test_a_watch_goes_on_from_its_list_and_ends_with_a_bookmark(cluster: Cluster, api: KubernetesApi) -> None:
    create(api, "a", app="x")
    listed = api.request("GET", PATH, {"labelSelector": "app=x"})
    create(api, "b", app="y")
    api.request("PATCH", f"{PATH}/b", body={"metadata": {"labels": {"app": "x"}}}, content_type=MERGE_PATCH)
    api.request("PATCH", f"{PATH}/a", body={"metadata": {"labels": {"app": "z"}}}, content_type=MERGE_PATCH)
    api.request("DELETE", f"{PATH}/b", body={})
    found = list(watch(api, listed["metadata"]["resourceVersion"], labelSelector="app=x"))
    version = str(cluster.store.revision)
    assert found == [("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b"), ("BOOKMARK", version)]


def test_a_version_that_history_has_forgotten_is_refused_in_the_stream(cluster: Cluster, api: KubernetesApi) -> None:
    for number in range(cluster.store.history_length + 1):
        cluster.api.create(SECRETS, "default", {"metadata": {"name": f"s-{number}"}})
    with pytest.raises(ApiError, match="too old resource version") as caught:
        list(watch(api, "1"))
    assert caught.value.status == 410


def test_pages_of_a_list_show_the_state_of_the_first_one(api: KubernetesApi) -> None:
    for name in ("a", "b", "c"):
        create(api, name)
    first = api.request("GET", PATH, {"limit": "2"})
    create(api, "d")
    second = api.request("GET", PATH, {"limit": "2", "continue": first["metadata"]["continue"]})
    assert [one["metadata"]["name"] for page in (first, second) for one in page["items"]] == ["a", "b", "c"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_only_the_calls_that_are_meant_fail_and_as_often_as_planned(cluster: Cluster, api: KubernetesApi) -> None:
    cluster.faults.inject(Answer(500), "create", "secrets", times=2, skip=1)
    cluster.faults.inject(Answer(500), "list", "pods", times=None)
    statuses: list[int] = []
    for name in ("a", "b", "c", "d"):
        try:
            create(api, name)
        except ApiError as error:
            statuses.append(error.status)
    assert (statuses, len(api.request("GET", PATH)["items"])) == ([500, 500], 2)


@pytest.mark.parametrize(("fault", "is_done"), [(LoseAnswer(), True), (DropRequest(), False)])
def test_a_cut_connection_leaves_the_deed_done_or_not(
    cluster: Cluster, api: KubernetesApi, fault: Fault, is_done: bool
) -> None:
    cluster.faults.inject(fault, "create")
    with pytest.raises(ApiError) as caught:
        create(api, "a")
    assert (caught.value.status, cluster.api.find(SECRETS, "default", "a") is not None) == (0, is_done)


@pytest.mark.parametrize(("codes", "condition"), [((0, 0), "Complete"), ((0, 1), "Failed")])
def test_a_job_ends_with_its_last_pod(cluster: Cluster, codes: tuple[int, int], condition: str) -> None:
    make_job(cluster, 2)
    cluster.settle()
    for index, code in enumerate(codes):
        assert list_conditions(cluster) == []
        cluster.kubelet.end(f"j-{index}", code)
        cluster.settle()
    assert condition in list_conditions(cluster)
    cluster.api.delete(JOBS, "default", "j")
    cluster.settle()
    assert cluster.pods() == []


@pytest.mark.parametrize("behaviour", [exit_with(0), Behaviour(run_seconds=60, ending=exit_with(0).ending)])
def test_a_pod_ends_when_its_behaviour_says_so(cluster: Cluster, behaviour: Behaviour) -> None:
    cluster.kubelet.on_start(behaviour=behaviour)
    make_job(cluster, 1)
    cluster.settle()
    assert ("Complete" in list_conditions(cluster)) == (behaviour.run_seconds == 0)
    cluster.advance(61)
    assert "Complete" in list_conditions(cluster)


def test_the_grace_of_a_deleted_pod_is_only_ever_shortened(cluster: Cluster) -> None:
    cluster.kubelet.on_start(behaviour=ignore_sigterm())
    make_job(cluster, 1)
    cluster.settle()
    (pod,) = cluster.pods()
    for seconds, left in ((None, 60), (90, 60), (20, 20)):
        cluster.api.delete(PODS, "default", pod["metadata"]["name"], DeleteOptions(grace_period_seconds=seconds))
        assert cluster.pods()[0]["metadata"]["deletionGracePeriodSeconds"] == left
    cluster.advance(19)
    assert len(cluster.pods()) == 1
    cluster.advance(2)
    assert cluster.pods() == []
