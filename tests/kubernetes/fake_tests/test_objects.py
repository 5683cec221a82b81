"""Objects are created, written, patched and selected as a real API server does it."""

import pytest
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import CONFIG_MAPS
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.manifests import make_job, make_pod


def config_map(name: str, **labels: str) -> dict:
    """Return a ConfigMap."""
    return {"metadata": {"name": name, "labels": labels}, "data": {"k": "1"}}


def test_a_created_object_has_a_uid_a_time_and_a_version(core: client.CoreV1Api) -> None:
    created = core.create_namespaced_config_map("default", config_map("a"))
    again = core.read_namespaced_config_map("a", "default")
    assert created.metadata.uid
    assert created.metadata.creation_timestamp
    assert created.metadata.resource_version == again.metadata.resource_version


def test_a_name_is_generated_from_its_beginning(core: client.CoreV1Api) -> None:
    names = {
        core.create_namespaced_config_map("default", {"metadata": {"generateName": "g-"}}).metadata.name
        for _ in range(3)
    }
    assert len(names) == 3
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


def test_a_name_that_is_taken_is_refused(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    assert refuse(lambda: core.create_namespaced_config_map("default", config_map("a"))) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


def test_what_is_not_there_is_not_found(core: client.CoreV1Api, batch: client.BatchV1Api) -> None:
    assert refuse(lambda: batch.read_namespaced_job("j", "default"))["message"] == 'jobs.batch "j" not found'
    create = lambda: core.create_namespaced_config_map("nowhere", config_map("a"))  # noqa: E731
    assert refuse(create)["message"] == 'namespaces "nowhere" not found'
    assert core.list_namespaced_pod("nowhere").items == [], "a list in a namespace that is not there is empty"


def test_a_write_from_an_old_version_is_a_conflict(core: client.CoreV1Api) -> None:
    old = core.create_namespaced_config_map("default", config_map("a"))
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    status = refuse(lambda: core.replace_namespaced_config_map("a", "default", old))
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_a_write_without_a_version_is_unconditional(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    replaced = core.replace_namespaced_config_map("a", "default", {"metadata": {"name": "a"}, "data": {"k": "3"}})
    assert replaced.data == {"k": "3"}


def test_a_lease_is_never_replaced_without_its_version(cluster: Cluster) -> None:
    leases = client.CoordinationV1Api(cluster.api_client())
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000001Z"}}
    leases.create_namespaced_lease("default", lease)
    assert refuse(lambda: leases.replace_namespaced_lease("l", "default", lease))["code"] == 422
    lease["spec"]["renewTime"] = "2026-01-01T00:00:00Z"
    answer = send(cluster, "PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", lease)
    assert answer.status == 400, "times of leases have microseconds"
    assert "cannot parse" in answer.json()["message"]


def test_a_write_that_changes_nothing_keeps_the_version(core: client.CoreV1Api) -> None:
    old = core.create_namespaced_config_map("default", config_map("a"))
    same = core.patch_namespaced_config_map("a", "default", {"data": {"k": "1"}})
    assert same.metadata.resource_version == old.metadata.resource_version


def test_versions_count_over_all_objects(core: client.CoreV1Api, batch: client.BatchV1Api) -> None:
    first = core.create_namespaced_config_map("default", config_map("a"))
    second = batch.create_namespaced_job("default", make_job())
    listed = core.list_namespaced_config_map("default")
    assert int(first.metadata.resource_version) < int(second.metadata.resource_version)
    assert listed.metadata.resource_version == second.metadata.resource_version


def test_generation_counts_changes_of_the_specification(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(suspend=True))
    annotated = batch.patch_namespaced_job("j", "default", {"metadata": {"annotations": {"a": "b"}}})
    assert annotated.metadata.generation == 1
    assert batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}}).metadata.generation == 2


def test_status_is_written_through_its_subresource_alone(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(suspend=True))
    batch.patch_namespaced_job("j", "default", {"status": {"active": 7}})
    assert batch.read_namespaced_job("j", "default").status.active is None
    patch = {"status": {"active": 7}, "spec": {"suspend": False}}
    batch.patch_namespaced_job_status("j", "default", patch)
    job = batch.read_namespaced_job("j", "default")
    assert (job.status.active, job.spec.suspend) == (7, True)


def test_a_client_cannot_declare_a_job_failed_on_its_own(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    conditions = [{"type": "Failed", "status": "True", "reason": "X", "message": "y"}]
    status = refuse(lambda: batch.patch_namespaced_job_status("j", "default", {"status": {"conditions": conditions}}))
    assert "cannot set Failed=True condition without the FailureTarget=true condition" in status["message"]


def test_strategic_patches_merge_conditions_by_type_and_merge_patches_replace_them(
    cluster: Cluster, core: client.CoreV1Api
) -> None:
    core.create_namespaced_pod("default", make_pod())
    path = "/api/v1/namespaces/default/pods/p/status"
    for kind in ("A", "B"):
        patch = {"status": {"conditions": [{"type": f"example.org/{kind}", "status": "True"}]}}
        send(cluster, "PATCH", path, patch, "application/strategic-merge-patch+json")
    types = [one.type for one in core.read_namespaced_pod("p", "default").status.conditions]
    assert sorted(types) == ["example.org/A", "example.org/B"]
    patch = {"status": {"conditions": [{"type": "example.org/C", "status": "True"}]}}
    send(cluster, "PATCH", path, patch, "application/merge-patch+json")
    assert [one.type for one in core.read_namespaced_pod("p", "default").status.conditions] == ["example.org/C"]


def test_strategic_patches_merge_owners_by_uid_and_remove_single_finalizers(
    cluster: Cluster, core: client.CoreV1Api
) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "a", "finalizers": ["x.org/1", "x.org/2"]}})
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name} for name in ("one", "two")]
    path, kind = "/api/v1/namespaces/default/configmaps/a", "application/strategic-merge-patch+json"
    for owner in owners:
        send(cluster, "PATCH", path, {"metadata": {"ownerReferences": [owner]}}, kind)
    send(cluster, "PATCH", path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.org/1"]}}, kind)
    metadata = core.read_namespaced_config_map("a", "default").metadata
    assert sorted(one.uid for one in metadata.owner_references) == ["one", "two"]
    assert metadata.finalizers == ["x.org/2"]


def test_a_json_patch_whose_test_fails_changes_nothing(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", config_map("a"))
    wrong = [{"op": "test", "path": "/data/k", "value": "9"}, {"op": "replace", "path": "/data/k", "value": "2"}]
    assert refuse(lambda: core.patch_namespaced_config_map("a", "default", wrong))["code"] == 422
    right = [{"op": "test", "path": "/data/k", "value": "1"}, {"op": "add", "path": "/data/l~1m", "value": "2"}]
    assert core.patch_namespaced_config_map("a", "default", right).data == {"k": "1", "l/m": "2"}


def test_server_side_apply_creates_and_then_merges(cluster: Cluster) -> None:
    path, kind = "/api/v1/namespaces/default/configmaps/a", "application/apply-patch+yaml"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
    assert send(cluster, "PATCH", f"{path}?fieldManager=me", body, kind).status == 201
    body["data"] = {"l": "2"}
    assert send(cluster, "PATCH", f"{path}?fieldManager=me", body, kind).json()["data"] == {"k": "1", "l": "2"}
    assert send(cluster, "PATCH", path, body, kind).status == 400, "apply needs a fieldManager"


def test_the_text_of_a_secret_is_kept_encoded(core: client.CoreV1Api) -> None:
    core.create_namespaced_secret("default", {"metadata": {"name": "s"}, "stringData": {"token": "abc"}})
    secret = core.read_namespaced_secret("s", "default")
    assert (secret.data, secret.string_data, secret.type) == ({"token": "YWJj"}, None, "Opaque")


def test_a_dry_run_leaves_nothing(core: client.CoreV1Api) -> None:
    created = core.create_namespaced_config_map("default", config_map("a"), dry_run="All")
    assert created.metadata.uid
    assert refuse(lambda: core.read_namespaced_config_map("a", "default"))["code"] == 404


def test_labels_select(core: client.CoreV1Api) -> None:
    for name, labels in {"a": {"app": "x", "n": "1"}, "b": {"app": "y", "n": "2"}, "c": {"app": "x"}}.items():
        core.create_namespaced_config_map("default", config_map(name, **labels))

    def select(selector: str) -> list[str]:
        listed = core.list_namespaced_config_map("default", label_selector=selector).items
        return [one.metadata.name for one in listed if one.metadata.name in "abc"]

    assert select("app=x") == ["a", "c"]
    assert select("app==x,n!=1") == ["c"], "what lacks a label has another value for it"
    assert select("n in (1, 2)") == ["a", "b"]
    assert select("app,!n") == ["c"]
    assert select("n notin (1)") == ["b", "c"]


def test_fields_select(cluster: Cluster, core: client.CoreV1Api) -> None:
    for name in ("p", "q"):
        core.create_namespaced_pod("default", make_pod(name))
    cluster.settle()
    cluster.kubelet.end("q", 0)
    cluster.settle()

    def select(selector: str) -> list[str]:
        return [one.metadata.name for one in core.list_namespaced_pod("default", field_selector=selector).items]

    assert select("metadata.name=p") == ["p"]
    assert select("status.phase!=Succeeded,spec.nodeName=node-0") == ["p"]
    status = refuse(lambda: select("spec.hostname=p"))
    assert status["code"] == 400
    assert status["message"].endswith("field label not supported: spec.hostname")


def test_a_list_comes_in_pages_of_one_state(core: client.CoreV1Api) -> None:
    for name in "abc":
        core.create_namespaced_config_map("default", config_map(name, app="x"))
    first = core.list_namespaced_config_map("default", limit=2, label_selector="app=x")
    core.delete_namespaced_config_map("c", "default")
    rest = core.list_namespaced_config_map("default", limit=2, _continue=first.metadata._continue)
    assert [one.metadata.name for one in first.items + rest.items] == ["a", "b", "c"]
    assert rest.metadata._continue is None
    assert rest.metadata.resource_version == first.metadata.resource_version


def test_a_page_whose_state_is_forgotten_is_gone(cluster: Cluster, core: client.CoreV1Api) -> None:
    for name in "abc":
        core.create_namespaced_config_map("default", config_map(name))
    first = core.list_namespaced_config_map("default", limit=1)
    cluster.store.compact()
    status = refuse(lambda: core.list_namespaced_config_map("default", limit=1, _continue=first.metadata._continue))
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_a_version_of_the_future_is_told_to_come_back_later(core: client.CoreV1Api) -> None:
    with pytest.raises(client.ApiException) as caught:
        core.list_namespaced_config_map("default", resource_version="999999")
    assert caught.value.status == 504
    assert caught.value.headers["Retry-After"] == "1"


def test_items_of_lists_do_not_say_what_they_are(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map("a")})
    listed = send(cluster, "GET", "/api/v1/namespaces/default/configmaps").json()
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])


def test_an_object_that_another_path_names_is_refused(core: client.CoreV1Api) -> None:
    status = refuse(lambda: core.replace_namespaced_config_map("a", "default", config_map("b")))
    assert status["message"] == "the name of the object (b) does not match the name on the URL (a)"
    body = {"metadata": {"name": "a", "namespace": "kube-system"}}
    status = refuse(lambda: core.create_namespaced_config_map("default", body))
    assert "does not match the namespace sent on the request" in status["message"]


def test_a_group_that_is_not_installed_is_no_status_but_text(cluster: Cluster) -> None:
    answer = send(cluster, "GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets")
    assert (answer.status, answer.data) == (404, b"404 page not found\n")
    answer = send(cluster, "GET", "/api/v1/namespaces/default/nothings")
    assert answer.json()["message"] == "the server could not find the requested resource"


def test_discovery_lists_what_is_installed() -> None:
    with Cluster(has_jobset=True, has_kueue=True) as cluster:
        groups = [one.name for one in client.ApisApi(cluster.api_client()).get_api_versions().groups]
        assert {"batch", "jobset.x-k8s.io", "kueue.x-k8s.io"} <= set(groups)
        custom = client.CustomObjectsApi(cluster.api_client())
        job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {}}
        custom.create_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", "default", "jobsets", job_set)
        listed = custom.list_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")
        assert [one["kind"] for one in listed["items"]] == ["JobSet"], "items of custom resources say what they are"
        resources = client.BatchV1Api(cluster.api_client()).get_api_resources().resources
        assert [one.name for one in resources] == ["jobs", "jobs/status"]
        assert client.VersionApi(cluster.api_client()).get_code().major == "1"
        assert send(cluster, "GET", "/livez", token=None).data == b"ok"


def test_a_wrong_token_is_unauthorised_and_none_is_anonymous(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/pods"
    assert send(cluster, "GET", path, token="stale").json()["message"] == "Unauthorized"
    message = send(cluster, "GET", path, token=None).json()["message"]
    assert message.startswith('pods is forbidden: User "system:anonymous" cannot list resource "pods"')


def test_an_object_too_large_is_refused(core: client.CoreV1Api) -> None:
    big = {"metadata": {"name": "big"}, "data": {"k": "x" * (1024 * 1024 + 1)}}
    status = refuse(lambda: core.create_namespaced_config_map("default", big))
    assert (status["code"], status["details"]["causes"][0]["reason"]) == (422, "FieldValueTooLong")
    huge = {"metadata": {"name": "huge"}, "data": {"k": "x" * (3 * 1024 * 1024 + 1)}}
    assert refuse(lambda: core.create_namespaced_config_map("default", huge))["code"] == 413


def test_what_tests_apply_past_http_is_not_recorded(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map("a")})
    assert cluster.get(CONFIG_MAPS, "a")["data"] == {"k": "1"}
    assert cluster.list_permissions_used() == set()
