"""Troubles of a cluster: each ends the attempt with its own reason, or is waited for, and is told in plain words."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.jobs import actions
from service.queue.state import RESERVED_AFTER
from service.settings import Settings
from service.store.models import Job
from tests.kubernetes.clusters import MakeCluster
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.faults import Answer
from tests.kubernetes.fake.resources import JOBS, PODS, SECRETS
from tests.kubernetes.played.behaviours import (
    Behaviour,
    be_evicted,
    be_refused,
    fail_to_configure,
    fail_to_pull,
    find_no_node,
    ignore_sigterm,
    run,
    run_out_of_memory,
    stay_in_creation,
)
from tests.kubernetes.real.cluster import RealCluster
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.scene import (
    DONE,
    Scene,
    end_when_asked,
    leave,
    make_scene,
    stop_service,
)


def get_first(scene: Scene, job_id: str) -> tuple[str | None, str]:
    """Return reason and message of the first attempt."""
    first, *_ = scene.services.jobs.list_attempts(job_id, USER)
    return first.reason, first.message


def delete_job(scene: Scene, job_id: str) -> None:
    """Delete the Job of the first attempt, as somebody else would."""
    options = DeleteOptions(propagation_policy="Background")
    scene.cluster.api.delete(JOBS, scene.cluster.namespace, scene.name_of(job_id), options)


def test_a_container_that_the_kernel_kills_for_its_memory_fails_the_job(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=run_out_of_memory())
    job = scene.wait_for(scene.submit(), "FAILED")
    assert (job.reason, job.num_attempts) == ("out_of_memory", 1)
    assert "resources.memory" in job.message
    scene.wait_until_empty()


def test_an_eviction_by_the_node_is_retried_and_not_counted(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=be_evicted(), times=1)
    job_id = scene.submit(max_restarts=0)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    reason, message = get_first(scene, job_id)
    assert (reason, "low on resource: memory" in message) == ("evicted", True)
    scene.wait_until_empty()


def test_a_node_that_does_not_take_the_pod_is_retried_and_not_counted(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=be_refused("OutOfpods"), times=2)
    job_id = scene.submit(max_restarts=0)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 3
    seen, message = get_first(scene, job_id)
    assert (seen, "was refused by its node (OutOfpods): Pod was rejected" in message) == ("evicted", True)
    scene.wait_until_empty()


def test_a_drain_of_the_node_is_retried_and_not_counted(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=end_when_asked(), times=1)
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    scene.cluster.api.evict(pod, DeleteOptions())
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    assert get_first(scene, job_id)[0] == "evicted"


def test_attempts_that_find_the_run_in_use_are_retried_and_not_counted(scene: Scene) -> None:
    message = "/runs/run is in use by process 7 on pod-1, attempt 1, since 2026-01-02 03:04:05 UTC"
    in_use = {"state": "failed", "reason": "run_in_use", "message": message}
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=leave(in_use, 1), times=2)
    job_id = scene.submit(max_restarts=0)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 3
    assert get_first(scene, job_id) == ("run_in_use", message)
    scene.wait_until_empty()


def test_a_preemption_is_retried_and_not_counted(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    scene.cluster.preempt(pod)
    scene.wait(job_id, lambda job: job.num_attempts == 2 or job.state == "RECOVERING")
    assert get_first(scene, job_id)[0] == "preempted"


def test_an_image_that_cannot_be_pulled_is_told_and_pulled_once_it_is_there(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=fail_to_pull("manifest unknown"))
    job_id = scene.submit()
    job = scene.wait(job_id, lambda job: job.reason == "image_pull")
    assert job.state == "STARTING"
    assert "manifest unknown" in job.message or "Back-off" in job.message
    scene.cluster.kubelet.change(scene.pod(job_id), leave(DONE, 0))
    scene.cluster.advance(400)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1


def test_an_image_that_never_comes_fails_the_job_in_the_end(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=fail_to_pull("manifest unknown"))
    job_id = scene.submit()
    scene.wait(job_id, lambda job: job.reason == "image_pull")
    scene.cluster.advance(601)
    job = scene.wait_for(job_id, "FAILED")
    assert (job.reason, job.num_attempts) == ("image_pull", 1)
    scene.wait_until_empty()


def test_a_container_that_cannot_be_made_is_told(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=fail_to_configure('secret "buckets" not found'))
    job_id = scene.submit(max_restarts=0)
    assert 'secret "buckets" not found' in scene.wait(job_id, lambda job: "secret" in job.message).message
    scene.cluster.advance(601)
    assert scene.wait_for(job_id, "FAILED").reason == "launch_failed"
    scene.wait_until_empty()


@pytest.mark.slow
def test_a_volume_that_cannot_be_mounted_is_told_and_ends_the_attempt_in_the_end(scene: Scene) -> None:
    warning = 'MountVolume.SetUp failed for volume "data-0": no such server'
    scene.cluster.kubelet.on_start(behaviour=stay_in_creation(warning))
    job_id = scene.submit(max_restarts=0)
    job = scene.wait(job_id, lambda job: "FailedMount" in job.message)
    assert (job.state, warning in job.message) == ("STARTING", True)
    scene.cluster.advance(601)
    job = scene.wait_for(job_id, "FAILED")
    assert (job.reason, warning in job.message, "pull_seconds = 600" in job.message) == ("launch_failed", True, True)
    scene.wait_until_empty()


def test_a_pod_without_a_node_says_why_and_runs_once_there_is_one(scene: Scene) -> None:
    words = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"
    scene.cluster.kubelet.on_start(behaviour=find_no_node(f"{words}. preemption: not helpful"))
    job_id = scene.submit(resources={"kubernetes": {"node_selector": {"pool": "ads"}}})
    job = scene.wait(job_id, lambda job: job.reason == "unschedulable")
    assert words in job.message
    scene.cluster.nodes.add("new", labels={"pool": "ads"})
    scene.cluster.kubelet.change(scene.pod(job_id), leave(DONE, 0))
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1


def test_a_pod_that_somebody_deletes_is_another_attempt(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=end_when_asked(), times=1)
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    scene.cluster.api.delete(PODS, scene.cluster.namespace, pod["metadata"]["name"], DeleteOptions())
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    assert get_first(scene, job_id)[0] == "stop_requested"
    scene.wait_until_empty()


@pytest.mark.parametrize("behaviour", [run(), ignore_sigterm()], ids=["SIGTERM", "SIGKILL"])
def test_a_pod_that_somebody_deletes_and_that_says_nothing_is_another_attempt(
    scene: Scene, behaviour: Behaviour
) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=behaviour, times=1)
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    scene.cluster.api.delete(PODS, scene.cluster.namespace, pod["metadata"]["name"], DeleteOptions())
    scene.cluster.advance(scene.settings.grace_period_seconds + 31)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    reason, message = get_first(scene, job_id)
    assert (reason, "was deleted, and not by the service" in message) == ("lost", True)
    scene.wait_until_empty()


def test_a_job_of_the_cluster_that_somebody_deletes_is_another_attempt(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=run(), times=1)
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    delete_job(scene, job_id)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    assert get_first(scene, job_id)[0] == "lost"
    scene.wait_until_empty()


def test_a_secret_that_somebody_deletes_does_not_disturb_a_running_job(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.api.delete(SECRETS, scene.cluster.namespace, scene.name_of(job_id), DeleteOptions())
    scene.turn()
    scene.cluster.kubelet.end(scene.pod(job_id), 0, leave(DONE, 0).ending.message)
    scene.wait_for(job_id, "SUCCEEDED")
    scene.wait_until_empty()


def test_a_lost_node_is_another_attempt_on_another_node(scene: Scene) -> None:
    scene.cluster.nodes.add("node-1")
    scene.cluster.kubelet.on_start(behaviour=run())
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    scene.cluster.lose_node(pod["spec"]["nodeName"])
    for _ in range(30):
        scene.cluster.advance(10)
        scene.turn()
    job = scene.wait(job_id, lambda job: job.num_attempts == 2 and job.state == "RUNNING")
    assert job.num_attempts == 2
    assert get_first(scene, job_id)[0] == "node_lost"
    assert [pod["spec"]["nodeName"] for pod in scene.cluster.pods(scene.name_of(job_id, 2))] != [
        pod["spec"]["nodeName"]
    ]


def test_a_quota_that_forbids_the_pods_is_told_in_the_cluster_s_words(scene: Scene) -> None:
    scene.cluster.forbid_pods()
    job_id = scene.submit()
    job = scene.wait(job_id, lambda job: job.reason == "quota_exceeded")
    assert (job.state, "exceeded quota: none" in job.message) == ("STARTING", True)
    scene.services.jobs.change(job_id, USER, actions.cancel)
    scene.wait_for(job_id, "CANCELLED")
    scene.wait_until_empty()


REFUSALS = [
    'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "proxy" must set '
    "securityContext.allowPrivilegeEscalation=false)",
    "maximum memory usage per Container is 1Gi, but limit is 8Gi",
    "no PriorityClass with name top was found",
    'error looking up service account dlrm/dlrm-worker: serviceaccount "dlrm-worker" not found',
]
"""Words of Pod Security, of a LimitRange, and of other admission plugins."""


@pytest.mark.parametrize("why", REFUSALS)
def test_pods_that_admission_refuses_are_told_in_the_cluster_s_words(scene: Scene, why: str) -> None:
    if isinstance(scene.cluster, RealCluster):
        pytest.skip("a real server finds its own words")
    scene.cluster.refuse_pods(f'pods "a-0-" is forbidden: {why}')
    job_id = scene.submit()
    job = scene.wait(job_id, lambda job: "forbidden" in job.message)
    assert (job.state, why in job.message) == ("STARTING", True)
    scene.services.jobs.change(job_id, USER, actions.cancel)
    scene.wait_for(job_id, "CANCELLED")
    scene.wait_until_empty()


def test_a_quota_that_forbids_the_job_is_waited_for_and_not_counted(scene: Scene) -> None:
    why = "exceeded quota: none, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0"
    refusal = Answer(403, "Forbidden", f'jobs.batch "a" is forbidden: {why}')
    scene.cluster.faults.inject(refusal, verb="create", resource="jobs", times=None)
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    job_id = scene.submit(max_restarts=0)
    scene.wait(job_id, lambda job: job.num_attempts >= 2)
    assert get_first(scene, job_id)[0] == "quota_exceeded"
    scene.cluster.faults.clear()
    scene.wait_for(job_id, "SUCCEEDED")
    scene.wait_until_empty()


def test_a_namespace_that_goes_fails_what_starts_there(scene: Scene) -> None:
    why = "unable to create new content in namespace dlrm because it is being terminated"
    refusal = Answer(403, "Forbidden", f'secrets "a" is forbidden: {why}')
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.faults.inject(refusal, verb="create", times=None)
    delete_job(scene, job_id)
    job = scene.wait_for(job_id, "FAILED")
    assert (job.reason, "the namespace is being deleted" in job.message) == ("launch_failed", True)


def test_what_runs_is_not_touched_while_the_cluster_is_out_of_sight(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.WATCH_SECONDS", 1)
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.STALE_SECONDS", 2.0)
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.MAX_PAUSE_SECONDS", 0.2)
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    with scene.cluster.refusing_connections():
        job = scene.wait(job_id, lambda job: job.reason == "unseen")
        assert (job.state, "out of sight" in job.message) == ("RUNNING", True)
    scene.wait(job_id, lambda job: job.reason == "process_started")
    assert scene.see(job_id).num_attempts == 1


@pytest.fixture
def poor_scene(
    make_cluster: MakeCluster, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """Scene whose cluster has a node with one GPU and few cores."""
    cluster = make_cluster(num_nodes=0)
    cluster.nodes.add("small", cpu="2", memory="4Gi", gpus=1)
    made = make_scene(cluster, settings, tmp_path, monkeypatch)
    yield made
    stop_service(made)


def test_a_job_that_fits_no_node_waits_with_its_misfit_and_others_pass_it(poor_scene: Scene) -> None:
    poor_scene.cluster.nodes.add("second", cpu="2", memory="4Gi")
    poor_scene.cluster.kubelet.on_start(behaviour=Behaviour())
    large, small = poor_scene.submit(priority=5, resources={"workers_per_node": 4}), poor_scene.submit()
    poor_scene.wait_for(small, "RUNNING")
    with poor_scene.services.database.write() as session:
        # As if it had once waited at the head: it takes no room from others.
        session.get_one(Job, large).at_head_since = datetime.now(UTC) - 2 * RESERVED_AFTER
    other = poor_scene.submit(resources={"workers_per_node": 2})
    poor_scene.wait_for(other, "RUNNING")
    job = poor_scene.see(large)
    assert (job.state, job.reason, job.num_attempts) == ("QUEUED", "unschedulable", 0)
    assert "asks for 4 cores, the largest machine has 2; it waits for larger machines" in job.message
    assert job.queue is not None
    assert job.queue.expected_start_at is None
    poor_scene.cluster.nodes.add("large", cpu="6", memory="4Gi")
    poor_scene.wait_for(large, "RUNNING")


def test_the_capacity_of_a_cluster_is_that_of_its_nodes_and_jobs_wait_for_it(poor_scene: Scene) -> None:
    poor_scene.cluster.kubelet.on_start(behaviour=Behaviour())
    first = poor_scene.submit(resources={"workers_per_node": 2})
    poor_scene.wait_for(first, "RUNNING")
    capacity = poor_scene.services.capacity.read()["kubernetes"]
    assert capacity is not None
    assert (capacity.total.num_cores, capacity.total.num_gpus) == (2, 1)
    second = poor_scene.submit()
    poor_scene.turn()
    job = poor_scene.see(second)
    assert (job.state, job.reason, job.message) == ("QUEUED", "waiting_for_cpu", "needs 1 core, 0 free")
