"""Whole lives of jobs on a cluster: whatever users do, the job table ends right, and nothing is left there."""

import json

import pytest

from service.jobs import actions
from service.launchers.kubernetes.status import read_termination
from tests.kubernetes.played.behaviours import Behaviour, exit_with, find_no_node, ignore_sigterm
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.scene import (
    DONE,
    STOPPED,
    Scene,
    end_when_asked,
    leave,
    make_message,
    stop_service,
)


def test_a_job_that_succeeds_leaves_nothing_in_the_cluster(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    job_id = scene.submit()
    job = scene.wait_for(job_id, "SUCCEEDED")
    assert (job.reason, job.metrics["auc"], job.num_attempts) == ("completed", 0.75, 1)
    scene.wait_until_empty()


def test_a_job_runs_for_as_long_as_its_pod_does(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    for _ in range(5):
        scene.turn()
    assert scene.see(job_id).state == "RUNNING"
    scene.cluster.kubelet.end(scene.pod(job_id), 0, make_message(DONE))
    scene.wait_for(job_id, "SUCCEEDED")
    (attempt,) = scene.services.jobs.list_attempts(job_id, USER)
    assert (attempt.node, attempt.exit_code) == ("node-0", 0)


def test_bad_input_fails_the_job_at_once_with_what_was_said_last(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=exit_with(64, "data.train.0: line 3: 39 columns"))
    job = scene.wait_for(scene.submit(), "FAILED")
    assert (job.reason, job.num_attempts) == ("bad_input", 1)
    assert "39 columns" in job.message
    scene.wait_until_empty()


def test_a_crash_begins_another_attempt_as_another_job_of_the_cluster(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=exit_with(1, "a wheel came off"), times=1)
    job_id = scene.submit()
    job = scene.wait_for(job_id, "SUCCEEDED")
    first, second = scene.services.jobs.list_attempts(job_id, USER)
    assert (job.num_attempts, first.reason, first.exit_code, second.exit_code) == (2, "worker_crashed", 1, 0)
    assert "a wheel came off" in first.message
    scene.wait_until_empty()


def test_crashes_without_progress_end_the_job(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=exit_with(1))
    job = scene.wait_for(scene.submit(max_restarts=1), "FAILED")
    assert (job.reason, job.num_attempts) == ("worker_crashed", 2)
    scene.wait_until_empty()


def test_a_held_job_that_is_cancelled_never_reaches_the_cluster(scene: Scene) -> None:
    job_id = scene.submit()
    scene.services.jobs.change(job_id, USER, actions.hold)
    scene.turn()
    scene.services.jobs.change(job_id, USER, actions.cancel)
    assert scene.see(job_id).state == "CANCELLED"
    assert scene.list_left() == []


def test_a_job_that_waits_for_a_node_can_be_cancelled(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=find_no_node("0/1 nodes are available"))
    job_id = scene.submit(resources={"kubernetes": {"node_selector": {"pool": "nowhere"}}})
    scene.wait(job_id, lambda job: job.reason == "unschedulable")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    assert scene.wait_for(job_id, "CANCELLED").reason == "user_cancelled"
    scene.wait_until_empty()


def test_a_running_job_that_is_cancelled_ends_after_a_checkpoint(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    job = scene.wait_for(job_id, "CANCELLED")
    (attempt,) = scene.services.jobs.list_attempts(job_id, USER)
    assert (job.reason, attempt.state, attempt.exit_code) == ("user_cancelled", "STOPPED", 75)
    scene.wait_until_empty()


def test_a_job_that_waits_for_its_restart_can_be_cancelled(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=exit_with(1))
    job_id = scene.submit()
    scene.wait_for(job_id, "RECOVERING")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    assert scene.wait_for(job_id, "CANCELLED").num_attempts == 1
    scene.wait_until_empty()


def test_a_paused_job_goes_on_as_another_attempt(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.services.jobs.change(job_id, USER, actions.pause)
    scene.wait_for(job_id, "PAUSED")
    scene.wait_until_empty()
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.services.jobs.change(job_id, USER, actions.resume)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 2
    scene.wait_until_empty()


def test_a_program_that_ignores_the_stop_is_killed_when_its_grace_period_is_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.cluster.kubelet.on_start(behaviour=ignore_sigterm())
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.services.jobs.change(job_id, USER, actions.cancel)
    for _ in range(3):
        scene.turn()
    assert scene.see(job_id).state == "CANCELLING"
    scene.cluster.advance(scene.settings.grace_period_seconds + 31)
    assert scene.wait_for(job_id, "CANCELLED").reason == "user_cancelled"
    scene.wait_until_empty()


@pytest.mark.slow
def test_the_deadline_stops_a_job(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=end_when_asked())
    job_id = scene.submit(deadline_seconds=1)
    job = scene.wait_for(job_id, "FAILED")
    assert job.reason == "deadline_exceeded"
    scene.wait_until_empty()


def test_an_outcome_is_read_from_the_message_that_a_container_leaves(scene: Scene) -> None:
    failed = {"state": "failed", "reason": "diverged", "message": "three steps in a row were not finite", "rank": 0}
    scene.cluster.kubelet.on_start(behaviour=leave(failed, 1))
    job = scene.wait_for(scene.submit(), "FAILED")
    assert (job.reason, job.message) == ("diverged", "rank 0: three steps in a row were not finite")


@pytest.mark.parametrize("message", ["{", "[]", '{"outcome": 3}', '{"outcome": {"state": "flew"}}'])
def test_a_message_that_is_no_outcome_is_taken_as_the_log(message: str) -> None:
    assert read_termination(f"{message}\n") == (None, message)


def test_a_message_that_no_database_stores_ends_the_attempt_all_the_same(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=exit_with(64, "\0\ud83d"))
    assert scene.wait_for(scene.submit(), "FAILED").reason == "bad_input"


@pytest.mark.parametrize(
    "scene", [{"allowed_priority_classes": ["hi*"], "allowed_tolerations": ["dedicated"]}], indirect=True
)
def test_a_job_document_names_priority_and_nodes_that_the_settings_allow(scene: Scene) -> None:
    scene.cluster.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
    )
    taint = {"key": "dedicated", "value": "ads", "effect": "NoSchedule"}
    scene.cluster.nodes.add("special", labels={"pool": "ads"}, taints=[taint])
    placement = {"priority_class": "high", "node_selector": {"pool": "ads"}, "tolerations": [taint]}
    job_id = scene.submit(resources={"kubernetes": placement})
    scene.wait_for(job_id, "RUNNING")
    (pod,) = scene.cluster.pods()
    assert (pod["spec"]["nodeSelector"], pod["spec"]["priorityClassName"]) == ({"pool": "ads"}, "high")
    assert {**taint, "operator": "Equal"} in pod["spec"]["tolerations"]


def test_the_files_of_an_attempt_are_in_a_secret_that_belongs_to_its_job(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    secret = scene.get_secret(job_id)
    document, target = json.loads(secret["spec.json"]), json.loads(secret["push.json"])
    assert document["job"]["data"]["train"] == ["/data/clicks/day_*.tsv"]
    assert document["data_roots"] == ["/data/clicks"]
    (attempt,) = scene.services.jobs.list_attempts(job_id, USER)
    assert target["url"] == f"http://dlrm.dlrm.svc:8080/v1/ingest/{attempt.id}"
    assert target["shares_files"] is False


def test_a_stop_from_outside_the_service_is_not_counted(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.kubelet.on_start(behaviour=leave(STOPPED, 75), times=2)
    job = scene.wait_for(scene.submit(max_restarts=0), "SUCCEEDED")
    assert job.num_attempts == 3


def test_two_jobs_run_side_by_side_and_another_service_finds_both(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.cluster.kubelet.on_start(behaviour=Behaviour(run_seconds=60, ending=leave(DONE, 0).ending))
    jobs = [scene.submit() for _ in range(2)]
    for job_id in jobs:
        scene.wait_for(job_id, "RUNNING")
    # One object a page.
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.PAGE_SIZE", 1)
    second = scene.replace_service()
    second.turn()
    second.cluster.advance(61)
    for job_id in jobs:
        assert second.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    second.wait_until_empty()
    stop_service(second)
