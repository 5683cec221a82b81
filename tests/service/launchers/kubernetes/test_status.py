"""State of an attempt from its objects, where these come late, in part, or contradict each other."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.launchers.kubernetes.pods import NodeSight
from service.launchers.kubernetes.status import AttemptObjects, observe
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason

Object = dict[str, Any]

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def format_time(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_job(kind: str = "", seconds_ago: float = 1, reason: str = "", message: str = "", **status: int) -> Object:
    condition = {"type": kind, "status": "True", "reason": reason, "message": message}
    conditions = [{**condition, "lastTransitionTime": format_time(seconds_ago)}] if kind else []
    return {"metadata": {"name": "a"}, "spec": {}, "status": {"conditions": conditions, **status}}


def make_pod(index: int = 0, phase: str = "Running", ended: Object | None = None, **metadata: str) -> Object:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    created = {"name": f"a-{index}-x", "labels": labels, "creationTimestamp": format_time(1000)}
    terminated = {"finishedAt": format_time(20), **ended} if ended is not None else None
    states = [{"name": "trainer", "state": {"terminated": terminated} if terminated else {"running": {}}}]
    return {
        "metadata": created | metadata,
        "spec": {"nodeName": f"node-{index}"},
        "status": {"phase": phase, "containerStatuses": states},
    }


def see(
    job: Object | None,
    *pods: Object,
    deleted: tuple[Object, ...] = (),
    nodes: set[str] | None = None,
    max_nodes: int = 2,
) -> LaunchStatus:
    sight = NodeSight(NOW, 60, None if nodes is None else frozenset(nodes))
    return observe(AttemptObjects(job, pods, deleted), max_nodes, 2, sight, pull_seconds=600)


def test_a_job_that_has_ended_waits_for_the_news_of_its_pods() -> None:
    assert see(make_job("Complete", 1, succeeded=1)).phase is LaunchPhase.ALIVE
    done = make_pod(phase="Succeeded", ended={"exitCode": 0})
    status = see(make_job("Complete", 1, succeeded=1), done)
    assert (status.phase, status.exit_code) == (LaunchPhase.ENDED, 0)


def test_pods_that_are_gone_for_long_are_not_waited_for() -> None:
    status = see(make_job("Failed", 60, "DeadlineExceeded", "Job was active longer than specified deadline", failed=1))
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, Reason.DEADLINE_EXCEEDED)


@pytest.mark.parametrize(("code", "seen"), [(1, 1), (75, 75), (128, 128), (137, -9), (143, -15)])
def test_an_end_by_a_signal_is_told_as_on_one_machine(code: int, seen: int) -> None:
    status = see(make_job("Failed", 60), make_pod(0, "Failed", {"exitCode": code}))
    assert status.exit_code == seen


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Pod ns/a-0-x has condition DisruptionTarget matching FailJob rule at index 0", Reason.EVICTED),
        ("Job has reached the specified backoff limit", Reason.WORKER_CRASHED),
    ],
)
def test_a_job_tells_what_pods_that_are_gone_no_longer_do(message: str, reason: Reason) -> None:
    status = see(make_job("Failed", 60, "PodFailurePolicy", message, failed=1))
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, reason)
    assert message in status.message


def test_a_pod_that_is_deleted_and_silent_is_lost_after_a_while() -> None:
    gone = make_pod(deletionTimestamp=format_time(61))
    fresh = make_pod(deletionTimestamp=format_time(30))
    assert see(make_job(), fresh, make_pod(1)).phase is LaunchPhase.ALIVE
    status = see(make_job(), gone)
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, Reason.NODE_LOST)


def test_a_node_that_is_known_to_be_gone_is_waited_for_no_longer() -> None:
    # Within its grace period, which only a node that answers carries out.
    gone = make_pod(deletionTimestamp=format_time(-100))
    assert see(make_job(), gone, make_pod(1), nodes={"node-0", "node-1"}).phase is LaunchPhase.ALIVE
    status = see(make_job(), gone, nodes={"node-1"})
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, Reason.NODE_LOST)


def test_an_attempt_ends_with_its_first_pod_once_the_others_had_time_to_follow() -> None:
    crashed = make_pod(0, "Failed", {"exitCode": 1, "finishedAt": format_time(5)})
    assert see(make_job(), crashed, make_pod(1)).phase is LaunchPhase.ALIVE
    crashed = make_pod(0, "Failed", {"exitCode": 1, "finishedAt": format_time(16)})
    status = see(make_job(), crashed, make_pod(1))
    assert (status.phase, status.exit_code, status.reason) == (LaunchPhase.ENDED, 1, None)
    status = see(make_job(), crashed, make_pod(1), nodes={"node-0"})
    assert (status.reason, "a-1-x is on a node that no longer answers" in status.message) == (Reason.NODE_LOST, True)


def test_the_end_of_another_pod_leaves_the_first_one_two_minutes_to_say_why() -> None:
    for seconds_ago, phase in ((100, LaunchPhase.ALIVE), (121, LaunchPhase.ENDED)):
        crashed = make_pod(1, "Failed", {"exitCode": 1, "finishedAt": format_time(seconds_ago)})
        assert see(make_job(), make_pod(0), crashed).phase is phase


@pytest.mark.parametrize(
    ("ended", "reason", "message"),
    [
        ({"exitCode": 137}, Reason.WORKER_CRASHED, "a-1-x was killed by SIGKILL"),
        ({"exitCode": 137, "reason": "OOMKilled"}, Reason.OUT_OF_MEMORY, "a-1-x was killed by the kernel"),
    ],
)
def test_a_pod_killed_as_a_whole_ends_the_attempt_before_the_others_miss_it(
    ended: Object, reason: Reason, message: str
) -> None:
    killed = make_pod(1, "Failed", {**ended, "finishedAt": format_time(10)})
    assert see(make_job(), make_pod(0), killed).phase is LaunchPhase.ALIVE
    killed = make_pod(1, "Failed", {**ended, "finishedAt": format_time(16)})
    status = see(make_job(), make_pod(0), killed)
    assert (status.phase, status.reason, status.exit_code) == (LaunchPhase.ENDED, reason, -9)
    assert message in status.message


def test_a_spare_pod_may_end_or_fail_to_start_as_long_as_the_others_train() -> None:
    both = make_pod(0), make_pod(1)
    killed = make_pod(2, "Failed", {"exitCode": 137, "finishedAt": format_time(1000)})
    assert see(make_job(), *both, killed, max_nodes=3).phase is LaunchPhase.ALIVE
    assert see(make_job(), *both, make_waiting_pod("ErrImagePull", 2), max_nodes=3).phase is LaunchPhase.ALIVE
    # It says nothing about the end of the others either.
    crashed = make_pod(0, "Failed", {"exitCode": 1, "finishedAt": format_time(16)})
    status = see(make_job(), crashed, make_pod(1), killed, max_nodes=3)
    assert (status.phase, status.exit_code, status.reason) == (LaunchPhase.ENDED, 1, None)


@pytest.mark.parametrize("message", ["", "drained"])
def test_a_spare_pod_evicted_hours_ago_does_not_explain_the_end_of_the_others(message: str) -> None:
    drained = make_pod(2, "Failed", {"exitCode": 75, "finishedAt": format_time(10_000)})
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": message}
    drained["status"]["conditions"] = [disruption]
    ended = make_pod(0, "Failed", {"exitCode": 64, "finishedAt": format_time(30)})
    other = make_pod(1, "Failed", {"exitCode": 64, "finishedAt": format_time(29)})
    status = see(make_job("Failed", 20, failed=3), ended, other, drained, max_nodes=3)
    assert (status.phase, status.exit_code, status.reason) == (LaunchPhase.ENDED, 64, None)
    # One that went shortly before the others was one of them.
    drained["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = format_time(60)
    assert see(make_job("Failed", 20, failed=3), ended, other, drained, max_nodes=3).reason is Reason.EVICTED


def make_waiting_pod(reason: str, index: int = 0, placed_seconds_ago: float = 1000) -> Object:
    pod = make_pod(index, "Pending")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(placed_seconds_ago)}
    pod["status"]["conditions"] = [scheduled]
    pod["status"]["containerStatuses"] = [{"name": "trainer", "state": {"waiting": {"reason": reason}}}]
    return pod


def test_the_time_in_which_an_image_may_come_begins_when_the_pod_has_its_node() -> None:
    for seconds_ago, phase in ((590, LaunchPhase.PENDING), (610, LaunchPhase.ENDED)):
        status = see(make_job(), make_waiting_pod("ErrImagePull", 0, seconds_ago), make_waiting_pod("", 1, 1))
        assert (status.phase, status.reason) == (phase, Reason.IMAGE_PULL)


@pytest.mark.parametrize(
    "message",
    [
        'Usage of EmptyDir volume "tmp" exceeds the limit "50Gi". ',
        "Container trainer exceeded its local ephemeral storage limit 51Gi. ",
        "Pod ephemeral local storage usage exceeds the total limit of containers 51Gi. ",
    ],
)
def test_a_pod_evicted_for_its_own_files_counts_as_crashed_and_names_the_setting(message: str) -> None:
    # kubernetes/kubernetes 104107: the kubelet invents 137 where the pod has filled its disk.
    evicted = make_pod(0, "Failed", {"exitCode": 137, "reason": "ContainerStatusUnknown"})
    evicted["status"] |= {"reason": "Evicted", "message": message}
    status = see(make_job("Failed", 60, failed=1), evicted)
    assert (status.reason, "scratch_bytes" in status.message) == (Reason.WORKER_CRASHED, True)
    evicted["status"]["message"] = "The node was low on resource: ephemeral-storage. "
    assert see(make_job("Failed", 60, failed=1), evicted).reason is Reason.EVICTED


def test_a_pod_on_a_lost_node_keeps_no_attempt_alive_whose_job_is_deleted() -> None:
    gone = make_pod(deletionTimestamp=format_time(100))
    status = see(None, gone)
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, Reason.NODE_LOST)


def test_a_pod_that_was_removed_by_force_says_nothing_of_its_end() -> None:
    status = see(make_job("Failed", 60, failed=1), deleted=(make_pod(),))
    assert (status.phase, status.reason) == (LaunchPhase.ENDED, Reason.LOST)


def test_without_any_object_an_attempt_is_absent() -> None:
    status = see(None)
    assert (status.phase, status.reason) == (LaunchPhase.ABSENT, Reason.LOST)
    assert see(None, make_pod()).phase is LaunchPhase.ALIVE


@pytest.mark.parametrize(
    "broken", [{}, {"status": None}, {"metadata": {"labels": None}, "spec": None, "status": {"conditions": None}}]
)
def test_objects_with_missing_parts_are_read_all_the_same(broken: Object) -> None:
    assert see(broken).phase is LaunchPhase.PENDING
    assert see(make_job(), broken).phase is LaunchPhase.PENDING
