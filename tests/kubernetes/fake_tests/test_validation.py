"""Refusals of the fake cluster have the words of a real API server."""

import pytest
from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake_tests.answers import refuse, send
from tests.kubernetes.fake_tests.manifests import EXIT_CODE_RULE, make_job, make_pod

JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"


def test_an_unknown_field_is_refused_where_validation_is_strict(cluster: Cluster) -> None:
    # The official client checks its models itself, so this request goes past it.
    answer = send(cluster, "POST", f"{JOBS_PATH}?fieldValidation=Strict", make_job(paralelism=3))
    described = 'Job in version "v1" cannot be handled as a Job'
    assert answer.json()["message"] == f'{described}: strict decoding error: unknown field "spec.paralelism"'
    assert answer.status == 400


def test_the_fake_is_strict_unless_a_request_or_a_test_says_otherwise(cluster: Cluster) -> None:
    job = make_job(paralelism=3)
    assert send(cluster, "POST", JOBS_PATH, job).status == 400
    answer = send(cluster, "POST", f"{JOBS_PATH}?fieldValidation=Warn", job)
    assert answer.status == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.paralelism\\""'
    assert "paralelism" not in answer.json()["spec"]


def test_a_field_of_a_wrong_type_is_refused(cluster: Cluster) -> None:
    status = send(cluster, "POST", JOBS_PATH, make_job(parallelism="two")).json()
    assert status["code"] == 400
    assert (
        "json: cannot unmarshal string into Go struct field Job.spec.parallelism of type integer" in status["message"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backoffLimit": -1}, "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"),
        ({"completions": None}, "spec.completions: Required value: when completion mode is Indexed"),
        (
            {"pod_spec": {"restartPolicy": "Always"}},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        (
            {"pod_spec": {"restartPolicy": "OnFailure"}, "podFailurePolicy": {"rules": [EXIT_CODE_RULE]}},
            'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when '
            "podFailurePolicy is specified",
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}],
                }
            },
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
        ),
        (
            {"podFailurePolicy": {"rules": [EXIT_CODE_RULE]}, "podReplacementPolicy": "TerminatingOrFailed"},
            'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
        ({"pod_spec": {"containers": []}}, "spec.template.spec.containers: Required value"),
    ],
)
def test_a_job_that_cannot_work_is_refused(batch: client.BatchV1Api, changes: dict, message: str) -> None:
    status = refuse(lambda: batch.create_namespaced_job("default", make_job(**changes)))
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert message in status["message"]


def test_a_rule_must_name_a_container_of_the_template(batch: client.BatchV1Api) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"containerName": "other", "operator": "In", "values": [1]}}
    status = refuse(lambda: batch.create_namespaced_job("default", make_job(podFailurePolicy={"rules": [rule]})))
    assert "must be one of the container or initContainer names in the pod template" in status["message"]


def test_the_names_of_an_indexed_job_leave_room_for_the_index(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job("x" * 61))
    status = refuse(lambda: batch.create_namespaced_job("default", make_job("x" * 62)))
    assert f"will not able to create pod with invalid DNS label: {'x' * 62}-1" in status["message"]


def test_several_causes_are_told_at_once(core: client.CoreV1Api) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "A B", "image": ""}]}}
    status = refuse(lambda: core.create_namespaced_pod("default", pod))
    fields = [one["field"] for one in status["details"]["causes"]]
    assert fields == ["spec.containers[0].name", "spec.containers[0].image"]
    assert status["message"].startswith('Pod "p" is invalid: [spec.containers[0].name: Invalid value: "A B": ')


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, "spec.template"),
        ({"completions": 5}, "spec.completions"),
        ({"completionMode": "NonIndexed"}, "spec.completionMode"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
        ({"podFailurePolicy": {"rules": [EXIT_CODE_RULE]}}, "spec.podFailurePolicy"),
    ],
)
def test_most_of_a_running_job_never_changes(
    cluster: Cluster, batch: client.BatchV1Api, patch: dict, field: str
) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    status = refuse(lambda: batch.patch_namespaced_job("j", "default", {"spec": patch}))
    assert status["code"] == 422
    assert field in [one["field"] for one in status["details"]["causes"]]


def test_a_suspended_job_takes_another_node_selector_and_resources_but_no_image(
    cluster: Cluster, batch: client.BatchV1Api
) -> None:
    batch.create_namespaced_job("default", make_job(suspend=True))
    cluster.settle()
    template = {"spec": {"nodeSelector": {"a": "b"}}, "metadata": {"annotations": {"c": "d"}}}
    batch.patch_namespaced_job("j", "default", {"spec": {"template": template}})
    container = {"name": "main", "resources": {"requests": {"cpu": "200m"}}}
    batch.patch_namespaced_job("j", "default", {"spec": {"template": {"spec": {"containers": [container]}}}})
    container = {"name": "main", "image": "other:2"}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    status = refuse(lambda: batch.patch_namespaced_job("j", "default", body))
    assert [one["field"] for one in status["details"]["causes"]] == ["spec.template.spec"]


def test_an_indexed_job_is_resized_with_both_numbers_at_once(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    body = {"spec": {"completions": 3, "parallelism": 3}}
    assert batch.patch_namespaced_job("j", "default", body).spec.completions == 3


def test_the_specification_of_a_pod_never_changes(core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    body = {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}
    message = refuse(lambda: core.patch_namespaced_pod("p", "default", body))["message"]
    assert message.startswith('Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than ')


def test_labels_have_at_most_63_letters(batch: client.BatchV1Api) -> None:
    job = make_job()
    job["spec"]["template"]["metadata"]["labels"]["long"] = "x" * 64
    status = refuse(lambda: batch.create_namespaced_job("default", job))
    assert "must be no more than 63 bytes" in status["message"]


def test_an_immutable_config_map_stays(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": True})
    status = refuse(lambda: core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}}))
    assert "field is immutable when `immutable` is set" in status["message"]


def test_gpus_must_have_a_limit(core: client.CoreV1Api) -> None:
    container = {"name": "main", "image": "x:1", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    status = refuse(lambda: core.create_namespaced_pod("default", make_pod(containers=[container])))
    assert "Limit must be set for non overcommitable resources" in status["message"]


def test_what_a_manifest_leaves_out_is_filled_in(batch: client.BatchV1Api) -> None:
    spec = batch.create_namespaced_job("default", make_job(backoffLimit=None)).spec
    assert (spec.backoff_limit, spec.suspend, spec.pod_replacement_policy) == (6, False, "TerminatingOrFailed")
    assert spec.selector.match_labels == {
        "batch.kubernetes.io/controller-uid": spec.template.metadata.labels["controller-uid"]
    }
    assert spec.template.metadata.labels["batch.kubernetes.io/job-name"] == "j"
    pod_spec = spec.template.spec
    assert (pod_spec.termination_grace_period_seconds, pod_spec.dns_policy) == (30, "ClusterFirst")
    container = pod_spec.containers[0]
    assert (container.image_pull_policy, container.termination_message_path) == ("IfNotPresent", "/dev/termination-log")
