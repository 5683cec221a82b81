"""Jobs of the fake cluster end as those of a real one."""

from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake_tests.manifests import DISRUPTION_RULE, EXIT_CODE_RULE, make_job


def conditions_of(job: client.V1Job) -> list[tuple[str, str, str, str]]:
    """Return type, status, reason and message of the conditions."""
    return [(one.type, one.status, one.reason, one.message) for one in job.status.conditions or []]


def test_a_job_whose_pods_all_succeed_is_complete(cluster: Cluster) -> None:
    batch = client.BatchV1Api(cluster.api_client())
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


def test_an_exit_code_of_a_rule_fails_the_job_and_ends_the_other_pods(cluster: Cluster) -> None:
    batch = client.BatchV1Api(cluster.api_client())
    cluster.kubelet.on_start({0: behaviours.run(), 1: behaviours.exit_with(64, "batch_size: must be positive")})
    policy = {"rules": [DISRUPTION_RULE, EXIT_CODE_RULE]}
    batch.create_namespaced_job("default", make_job(podFailurePolicy=policy))
    cluster.settle()

    job = batch.read_namespaced_job("j", "default")
    failed = next(pod for pod in cluster.pods("j") if pod["metadata"]["name"].startswith("j-1-"))
    name = failed["metadata"]["name"]
    message = f"Container main for pod default/{name} failed with exit code 64 matching FailJob rule at index 1"
    assert conditions_of(job) == [
        ("FailureTarget", "True", "PodFailurePolicy", message),
        ("Failed", "True", "PodFailurePolicy", message),
    ]
    assert job.status.failed == 2, "the pod that was ended because of the other counts as well"
    assert [pod["metadata"]["name"] for pod in cluster.pods("j")] == [name], "active pods are deleted, not kept"
    terminated = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == "batch_size: must be positive"
