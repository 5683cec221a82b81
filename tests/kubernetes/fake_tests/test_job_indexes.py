"""Indexes of Jobs with `backoffLimitPerIndex` fail one by one, as those of a real cluster."""

from typing import Any

from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake_tests.answers import conditions_of, refuse
from tests.kubernetes.fake_tests.manifests import make_job

FAIL_INDEX = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [65]}}
FAIL_JOB = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64]}}
IGNORE = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}
POLICY = {"rules": [FAIL_JOB, FAIL_INDEX, IGNORE]}
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"


def limited_job(pods: int = 2, limit: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a Job that limits the failures of each index."""
    wanted = {"backoffLimit": None, "podFailurePolicy": POLICY, "backoffLimitPerIndex": limit, **spec}
    return make_job(pods=pods, **wanted)


def names_of(cluster: Cluster, index: int) -> list[str]:
    """Return the names of an index's pods."""
    return [pod["metadata"]["name"] for pod in cluster.pods("j") if pod["metadata"]["name"].startswith(f"j-{index}-")]


def annotations_of(cluster: Cluster, index: int) -> dict[str, str]:
    """Return what the newest pod of an index knows of failures before it."""
    pods = [pod for pod in cluster.pods("j") if pod["metadata"]["name"].startswith(f"j-{index}-")]
    newest = max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])
    found: dict[str, str] = newest["metadata"]["annotations"]
    return {name: value for name, value in found.items() if name in (FAILURE_COUNT, IGNORED_COUNT)}


def test_a_failed_index_leaves_the_others_running(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start({0: behaviours.exit_with(0, after_seconds=2), 1: behaviours.exit_with(65)})
    created = batch.create_namespaced_job("default", limited_job(limit=5))
    assert created.spec.backoff_limit == 2**31 - 1
    cluster.settle()
    (running,) = names_of(cluster, 0)
    status = cluster.job("j")["status"]
    assert status == {
        "startTime": cluster.clock.timestamp(),
        "active": 1,
        "failed": 1,
        "terminating": 0,
        "failedIndexes": "1",
        "uncountedTerminatedPods": {},
        "ready": 1,
    }
    assert len(names_of(cluster, 1)) == 1, "it is not replaced"

    cluster.advance(2)
    job = batch.read_namespaced_job("j", "default")
    assert names_of(cluster, 0) == [running]
    assert conditions_of(job) == [
        ("FailureTarget", "True", "FailedIndexes", "Job has failed indexes"),
        ("Failed", "True", "FailedIndexes", "Job has failed indexes"),
    ]
    assert (job.status.succeeded, job.status.failed) == (1, 1)
    assert (job.status.completed_indexes, job.status.failed_indexes) == ("0", "1")


def test_the_status_begins_without_failed_indexes(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", limited_job())
    cluster.settle()
    assert cluster.job("j")["status"]["failedIndexes"] == ""
    assert annotations_of(cluster, 0) == {FAILURE_COUNT: "0"}


def test_failed_indexes_are_written_as_intervals(cluster: Cluster, batch: client.BatchV1Api) -> None:
    failing = {index: behaviours.exit_with(1) for index in (0, 2, 3, 4)}
    cluster.kubelet.on_start({**failing, 1: behaviours.run(), 5: behaviours.run()})
    batch.create_namespaced_job("default", limited_job(pods=6))
    cluster.settle()
    status = cluster.job("j")["status"]
    assert (status["failedIndexes"], status["active"], status["failed"]) == ("0,2-4", 2, 4)


def test_an_index_is_retried_as_often_as_its_limit_says(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start({0: behaviours.run(), 1: behaviours.exit_with(1)})
    batch.create_namespaced_job("default", limited_job(limit=2))
    cluster.settle()
    (running,) = names_of(cluster, 0)
    course = []
    for seconds in (9, 1, 19, 1, 1000):
        cluster.advance(seconds)
        status = cluster.job("j")["status"]
        course.append((len(names_of(cluster, 1)), status["failedIndexes"], annotations_of(cluster, 1)[FAILURE_COUNT]))
    assert course == [(1, "", "0"), (2, "", "1"), (2, "", "1"), (3, "1", "2"), (3, "1", "2")]
    status = cluster.job("j")["status"]
    assert (status["failed"], status["active"]) == (3, 1)
    assert names_of(cluster, 0) == [running]


def test_a_failed_pod_stays_uncounted_until_its_index_goes_on(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(1, behaviours.exit_with(1), times=1)
    batch.create_namespaced_job("default", limited_job(limit=1))
    cluster.settle()
    failed = next(pod for pod in cluster.pods("j") if pod["status"]["phase"] == "Failed")
    assert failed["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    assert "failed" not in cluster.job("j")["status"]
    cluster.advance(10)
    failed = next(pod for pod in cluster.pods("j") if pod["status"]["phase"] == "Failed")
    assert "finalizers" not in failed["metadata"] or not failed["metadata"]["finalizers"]
    assert (cluster.job("j")["status"]["failed"], cluster.job("j")["status"]["active"]) == (1, 2)


def test_the_pauses_of_an_index_do_not_hold_up_another(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(1, behaviours.exit_with(1))
    cluster.kubelet.on_start(0, behaviours.exit_with(1, after_seconds=25), times=1)
    batch.create_namespaced_job("default", limited_job(limit=5))
    cluster.settle()
    for seconds in (10, 15, 5, 5):
        cluster.advance(seconds)
    assert len(names_of(cluster, 1)) == 3
    assert len(names_of(cluster, 0)) == 2, "10 s after its first failure, whatever the other has done"


def test_what_a_policy_ignores_does_not_fail_an_index(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(1, behaviours.exit_with(3), times=2)
    batch.create_namespaced_job("default", limited_job(limit=0))
    cluster.settle()
    cluster.advance(10)
    cluster.advance(20)
    status = cluster.job("j")["status"]
    assert (status["failedIndexes"], status["active"]) == ("", 2)
    assert "failed" not in status
    assert annotations_of(cluster, 1) == {FAILURE_COUNT: "0", IGNORED_COUNT: "2"}


def test_a_rule_may_fail_the_whole_job_still(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start({0: behaviours.run(), 1: behaviours.exit_with(64), 2: behaviours.exit_with(65)})
    batch.create_namespaced_job("default", limited_job(pods=3, limit=5))
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert [one[0] for one in conditions_of(job)] == ["FailureTarget", "Failed"]
    assert conditions_of(job)[-1][2] == "PodFailurePolicy"
    assert names_of(cluster, 0) == []
    assert job.status.failed_indexes == "2"


def test_too_many_failed_indexes_end_the_job(cluster: Cluster, batch: client.BatchV1Api) -> None:
    starts = {0: behaviours.ignore_sigterm(), 1: behaviours.exit_with(65), 2: behaviours.exit_with(65, after_seconds=5)}
    cluster.kubelet.on_start(starts)
    batch.create_namespaced_job("default", limited_job(pods=3, maxFailedIndexes=1))
    cluster.settle()
    assert cluster.job("j")["status"]["active"] == 2
    cluster.advance(5)
    text = "Job has exceeded the specified maximal number of failed indexes"
    target = ("FailureTarget", "True", "MaxFailedIndexesExceeded", text)
    assert conditions_of(batch.read_namespaced_job("j", "default")) == [target], "a pod is terminating"
    cluster.advance(30)
    assert conditions_of(batch.read_namespaced_job("j", "default")) == [target, ("Failed", *target[1:])]


def test_a_deleted_pod_fails_its_index_once_it_has_ended(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    batch.create_namespaced_job("default", limited_job())
    cluster.settle()
    (name,) = names_of(cluster, 1)
    core.delete_namespaced_pod(name, "default")
    cluster.settle()
    status = cluster.job("j")["status"]
    assert (status["failedIndexes"], status["active"], status["terminating"]) == ("", 1, 1)
    cluster.advance(30)
    status = cluster.job("j")["status"]
    assert (status["failedIndexes"], status["active"], status["terminating"]) == ("1", 1, 0)
    assert names_of(cluster, 1) == []


def test_a_pod_that_is_deleted_before_it_had_a_node_fails_its_index(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    batch.create_namespaced_job("default", limited_job(pod_spec={"nodeSelector": {"is": "nowhere"}}))
    cluster.settle()
    (name,) = names_of(cluster, 1)
    core.delete_namespaced_pod(name, "default")
    cluster.settle()
    status = cluster.job("j")["status"]
    assert (status["failedIndexes"], status["failed"], status["active"]) == ("1", 1, 1)
    assert names_of(cluster, 1) == []


def test_limits_per_index_need_indexes(batch: client.BatchV1Api) -> None:
    job = limited_job(completionMode="NonIndexed", maxFailedIndexes=1)
    causes = refuse(lambda: batch.create_namespaced_job("default", job))["details"]["causes"]
    message = "requires indexed completion mode"
    assert [(one["field"], one["message"]) for one in causes] == [
        ("spec.backoffLimitPerIndex", f"Invalid value: 0: {message}"),
        ("spec.maxFailedIndexes", f"Invalid value: 1: {message}"),
    ]


def test_failing_an_index_needs_a_limit_per_index(batch: client.BatchV1Api) -> None:
    job = limited_job(backoffLimitPerIndex=None, maxFailedIndexes=1)
    causes = refuse(lambda: batch.create_namespaced_job("default", job))["details"]["causes"]
    why = "requires the backoffLimitPerIndex to be set"
    assert [(one["field"], one["message"]) for one in causes] == [
        ("spec.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified"),
        ("spec.podFailurePolicy.rules[1].action", f'Invalid value: "FailIndex": {why}'),
    ]


def test_a_failure_policy_needs_pods_that_are_never_restarted(batch: client.BatchV1Api) -> None:
    job = limited_job(pod_spec={"restartPolicy": "OnFailure"})
    (cause,) = refuse(lambda: batch.create_namespaced_job("default", job))["details"]["causes"]
    assert cause["field"] == "spec.template.spec.restartPolicy"


def test_no_more_indexes_may_fail_than_there_are(batch: client.BatchV1Api) -> None:
    job = limited_job(maxFailedIndexes=3, backoffLimitPerIndex=-1)
    causes = refuse(lambda: batch.create_namespaced_job("default", job))["details"]["causes"]
    assert [(one["field"], one["message"]) for one in causes] == [
        ("spec.backoffLimitPerIndex", "Invalid value: -1: must be greater than or equal to 0"),
        ("spec.maxFailedIndexes", "Invalid value: 3: must be less than or equal to completions"),
    ]


def test_the_limit_per_index_never_changes(batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", limited_job())
    body = {"spec": {"backoffLimitPerIndex": 1}}
    (cause,) = refuse(lambda: batch.patch_namespaced_job("j", "default", body))["details"]["causes"]
    assert (cause["field"], cause["message"]) == (
        "spec.backoffLimitPerIndex",
        "Invalid value: 1: field is immutable",
    )
