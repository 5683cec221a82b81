"""Jobs of the fake cluster start, end and are counted as those of a real one."""

from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake.resources import JOBS
from tests.kubernetes.fake_tests.answers import conditions_of, refuse
from tests.kubernetes.fake_tests.manifests import DISRUPTION_RULE, EXIT_CODE_RULE, make_job

POLICY = {"rules": [DISRUPTION_RULE, EXIT_CODE_RULE]}


def names_of(cluster: Cluster, job: str = "j") -> list[str]:
    """Return the names of a Job's pods."""
    return [pod["metadata"]["name"] for pod in cluster.pods(job)]


def test_pods_of_an_indexed_job_know_their_index(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    first, second = cluster.pods("j")
    assert first["metadata"]["name"].startswith("j-0-")
    assert second["spec"]["hostname"] == "j-1"
    index = "batch.kubernetes.io/job-completion-index"
    assert second["metadata"]["annotations"][index] == second["metadata"]["labels"][index] == "1"
    variable = second["spec"]["containers"][0]["env"][0]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{index}']"
    assert second["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    owner = second["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"], owner["blockOwnerDeletion"]) == ("Job", "j", True, True)


def test_a_running_job_counts_active_and_ready_pods(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    assert cluster.job("j")["status"] == {
        "active": 2,
        "ready": 2,
        "terminating": 0,
        "startTime": cluster.clock.timestamp(),
        "uncountedTerminatedPods": {},
    }


def test_a_job_whose_pods_all_succeed_is_complete(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(0))
    batch.create_namespaced_job("default", make_job())
    cluster.settle()

    job = batch.read_namespaced_job("j", "default")
    message = "Reached expected number of succeeded pods"
    assert conditions_of(job) == [
        ("SuccessCriteriaMet", "True", "CompletionsReached", message),
        ("Complete", "True", "CompletionsReached", message),
    ]
    assert (job.status.succeeded, job.status.failed, job.status.active) == (2, None, None)
    assert job.status.completed_indexes == "0,1"
    assert job.status.completion_time == job.status.conditions[1].last_transition_time
    assert len(names_of(cluster)) == 2, "pods that have ended stay"


def test_an_exit_code_of_a_rule_fails_the_job_and_ends_the_other_pods(
    cluster: Cluster, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start({0: behaviours.run(), 1: behaviours.exit_with(64, "batch_size: must be positive")})
    batch.create_namespaced_job("default", make_job(podFailurePolicy=POLICY))
    cluster.settle()

    job = batch.read_namespaced_job("j", "default")
    (failed,) = cluster.pods("j")
    name = failed["metadata"]["name"]
    message = f"Container main for pod default/{name} failed with exit code 64 matching FailJob rule at index 1"
    assert conditions_of(job) == [
        ("FailureTarget", "True", "PodFailurePolicy", message),
        ("Failed", "True", "PodFailurePolicy", message),
    ]
    assert job.status.failed == 2, "the pod that was ended because of the other counts as well"
    assert name.startswith("j-1-"), "active pods are deleted, not kept"
    terminated = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == "batch_size: must be positive"


def test_a_failing_job_is_failed_only_once_all_pods_have_ended(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start({0: behaviours.ignore_sigterm(), 1: behaviours.exit_with(64)})
    batch.create_namespaced_job("default", make_job(podFailurePolicy=POLICY))
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert [one.type for one in job.status.conditions] == ["FailureTarget"]
    assert (job.status.terminating, job.status.active) == (1, None)
    cluster.advance(30)
    job = batch.read_namespaced_job("j", "default")
    assert [one.type for one in job.status.conditions] == ["FailureTarget", "Failed"]


def test_a_disrupted_pod_fails_the_job_by_the_rule_on_conditions(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(podFailurePolicy=POLICY))
    cluster.settle()
    cluster.kubelet.evict("j-0-", "The node was low on resource: memory. ")
    cluster.settle()
    (evicted,) = cluster.pods("j")
    name = evicted["metadata"]["name"]
    job = batch.read_namespaced_job("j", "default")
    assert conditions_of(job)[-1][1:] == (
        "True",
        "PodFailurePolicy",
        f"Pod default/{name} has condition DisruptionTarget matching FailJob rule at index 0",
    )


def test_the_first_rule_that_matches_counts(cluster: Cluster, batch: client.BatchV1Api) -> None:
    ignore = {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [0, 64]}}
    policy = {"rules": [ignore, EXIT_CODE_RULE]}
    cluster.kubelet.on_start(0, behaviours.exit_with(3), times=1)
    batch.create_namespaced_job("default", make_job(pods=1, podFailurePolicy=policy))
    cluster.settle()
    assert "failed" not in cluster.job("j")["status"], "what is ignored is not counted"
    cluster.advance(10)
    assert cluster.job("j")["status"]["active"] == 1, "and is replaced"


def test_a_failure_beyond_the_backoff_limit_fails_the_job(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(0, behaviours.exit_with(1))
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    text = "Job has reached the specified backoff limit"
    assert conditions_of(job) == [
        ("FailureTarget", "True", "BackoffLimitExceeded", text),
        ("Failed", "True", "BackoffLimitExceeded", text),
    ]
    assert job.status.failed == 2


def test_a_failed_pod_is_replaced_after_a_pause_that_doubles(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(1))
    batch.create_namespaced_job("default", make_job(pods=1, backoffLimit=3))
    cluster.settle()
    numbers = []
    for seconds in (9, 1, 19, 1):
        cluster.advance(seconds)
        numbers.append(len(names_of(cluster)))
    assert numbers == [1, 2, 2, 3]
    assert cluster.job("j")["status"]["failed"] == 3


def test_a_deleted_pod_is_replaced_while_it_still_ends_unless_the_job_says_otherwise(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    batch.create_namespaced_job("default", make_job("a", pods=1, backoffLimit=2))
    batch.create_namespaced_job("default", make_job("b", pods=1, backoffLimit=2, podReplacementPolicy="Failed"))
    cluster.settle()
    for name in names_of(cluster, "a") + names_of(cluster, "b"):
        core.delete_namespaced_pod(name, "default")
    cluster.advance(10)
    assert (len(names_of(cluster, "a")), len(names_of(cluster, "b"))) == (2, 1)
    assert cluster.job("a")["status"]["failed"] == 1
    assert "failed" not in cluster.job("b")["status"], "it counts once it has ended"
    cluster.advance(20)
    assert cluster.job("b")["status"]["failed"] == 1
    cluster.advance(10)
    assert (len(names_of(cluster, "a")), len(names_of(cluster, "b"))) == (1, 1)


def test_a_suspended_job_has_no_pods_and_starts_anew_when_resumed(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(suspend=True))
    cluster.settle()
    assert conditions_of(batch.read_namespaced_job("j", "default")) == [
        ("Suspended", "True", "JobSuspended", "Job suspended")
    ]
    assert "startTime" not in cluster.job("j")["status"]
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    cluster.settle()
    assert conditions_of(batch.read_namespaced_job("j", "default")) == [
        ("Suspended", "False", "JobResumed", "Job resumed")
    ]
    before = names_of(cluster)
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": True}})
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert names_of(cluster) == []
    assert job.status.failed is None, "pods that suspending ends do not count as failed"
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    cluster.advance(5)
    assert len(names_of(cluster)) == 2
    assert not set(names_of(cluster)) & set(before)
    assert cluster.job("j")["status"]["startTime"] == cluster.clock.timestamp()


def test_a_job_fails_at_its_deadline_even_if_its_pods_never_started(cluster: Cluster, batch: client.BatchV1Api) -> None:
    container = {"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "1000"}}}
    job = make_job(pods=1, activeDeadlineSeconds=60, pod_spec={"containers": [container]})
    batch.create_namespaced_job("default", job)
    cluster.settle()
    cluster.advance(59)
    assert cluster.job("j")["status"]["active"] == 1
    cluster.advance(1)
    assert conditions_of(batch.read_namespaced_job("j", "default"))[-1] == (
        "Failed",
        "True",
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )
    assert names_of(cluster) == []


def test_a_deadline_stands_still_while_a_job_is_suspended(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(activeDeadlineSeconds=60, suspend=True))
    cluster.settle()
    cluster.advance(100)
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    cluster.settle()
    cluster.advance(59)
    assert cluster.job("j")["status"]["active"] == 2


def test_a_job_goes_some_time_after_its_end(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(0))
    batch.create_namespaced_job("default", make_job(ttlSecondsAfterFinished=100))
    cluster.settle()
    cluster.advance(99)
    assert cluster.api.find(JOBS, "default", "j") is not None
    cluster.advance(1)
    assert cluster.api.find(JOBS, "default", "j") is None
    assert names_of(cluster) == []


def test_a_success_policy_ends_the_job_when_its_leader_has_succeeded(
    cluster: Cluster, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start({0: behaviours.exit_with(0), 1: behaviours.run()})
    policy = {"rules": [{"succeededIndexes": "0"}]}
    batch.create_namespaced_job("default", make_job(successPolicy=policy))
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert conditions_of(job) == [
        ("SuccessCriteriaMet", "True", "SuccessPolicy", "Matched rules at index 0"),
        ("Complete", "True", "SuccessPolicy", "Matched rules at index 0"),
    ]
    assert (job.status.succeeded, job.status.failed) == (1, None), "pods ended by success do not count as failed"
    assert [name[:4] for name in names_of(cluster)] == ["j-0-"]


def test_a_job_without_indexes_counts_its_pods(cluster: Cluster, batch: client.BatchV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(0))
    batch.create_namespaced_job("default", make_job(completionMode="NonIndexed", completions=5, parallelism=2))
    cluster.settle()
    job = batch.read_namespaced_job("j", "default")
    assert (job.status.succeeded, job.status.completed_indexes) == (5, None)
    assert "JOB_COMPLETION_INDEX" not in str(cluster.pods("j"))


def test_a_container_that_restarts_in_its_pod_counts_towards_the_limit(
    cluster: Cluster, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(1))
    batch.create_namespaced_job("default", make_job(pods=1, backoffLimit=2, pod_spec={"restartPolicy": "OnFailure"}))
    cluster.settle()
    assert len(names_of(cluster)) == 1
    status = cluster.pods("j")[0]["status"]["containerStatuses"][0]
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["exitCode"] == 1
    cluster.advance(10)
    assert conditions_of(batch.read_namespaced_job("j", "default"))[-1][2] == "BackoffLimitExceeded"


def test_a_quota_that_forbids_pods_is_told_in_an_event(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "100m"}}}
    core.create_namespaced_resource_quota("default", quota)
    batch.create_namespaced_job("default", make_job())
    cluster.settle()
    assert cluster.job("j")["status"]["active"] == 1
    (event,) = [one for one in core.list_namespaced_event("default").items if one.reason == "FailedCreate"]
    assert event.message.startswith('Error creating: pods "j-1-')
    assert event.message.endswith(
        "is forbidden: exceeded quota: q, requested: requests.cpu=100m, used: requests.cpu=100m, "
        "limited: requests.cpu=100m"
    )
    used = core.read_namespaced_resource_quota("q", "default").status.used
    assert used == {"requests.cpu": "100m"}
    core.delete_namespaced_resource_quota("q", "default")
    cluster.settle()
    assert cluster.job("j")["status"]["active"] == 2


def test_the_course_of_a_job_is_told_in_events(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    cluster.kubelet.on_start(None, behaviours.exit_with(0))
    batch.create_namespaced_job("default", make_job(pods=1, suspend=True))
    cluster.settle()
    batch.patch_namespaced_job("j", "default", {"spec": {"suspend": False}})
    cluster.settle()
    selector = "involvedObject.kind=Job,involvedObject.name=j"
    events = core.list_namespaced_event("default", field_selector=selector).items
    assert {one.reason for one in events} == {"Suspended", "Resumed", "SuccessfulCreate", "Completed"}
    scheduled = core.list_namespaced_event("default", field_selector="reason=Scheduled").items[0]
    assert (scheduled.count, scheduled.last_timestamp) == (None, None), "the scheduler's events are of the newer kind"
    assert scheduled.event_time


def test_a_pod_that_a_policy_counts_is_gone_only_after_it_is_counted(
    cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api
) -> None:
    batch.create_namespaced_job("default", make_job(pods=1, podFailurePolicy=POLICY))
    cluster.settle()
    (name,) = names_of(cluster)
    core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    held = core.read_namespaced_pod(name, "default")
    assert held.metadata.deletion_timestamp, "its finalizer holds it"
    cluster.settle()
    assert refuse(lambda: core.read_namespaced_pod(name, "default"))["code"] == 404


def test_other_controllers_may_manage_a_job(cluster: Cluster, batch: client.BatchV1Api) -> None:
    batch.create_namespaced_job("default", make_job(managedBy="kueue.x-k8s.io/multikueue"))
    cluster.settle()
    assert names_of(cluster) == []
    assert cluster.job("j")["status"] == {}
