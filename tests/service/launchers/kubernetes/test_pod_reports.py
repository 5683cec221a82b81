"""What clusters report of pods: rejections that a kubelet names, and pods as public threads have posted them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.control.restart_policy import UNCOUNTED
from service.launchers.kubernetes.pods import NodeSight
from service.launchers.kubernetes.status import AttemptObjects, observe
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason

Object = dict[str, Any]

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
PENDING, ALIVE, ENDED = LaunchPhase.PENDING, LaunchPhase.ALIVE, LaunchPhase.ENDED


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_pod(phase: str, trainer: Object | None = None, index: int = 0, **status: Any) -> Object:
    """Make a pod that has had its node for 1,000 s. trainer: state of its container. status: further parts."""
    containers = [{"name": "trainer", "state": trainer}] if trainer else []
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "metadata": {"name": f"a-{index}", "uid": f"u-{index}", "labels": labels, "creationTimestamp": ago(2000)},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "conditions": [SCHEDULED], "containerStatuses": containers} | status,
    }


def condition(kind: str, value: str, reason: str = "", message: str = "", seconds_ago: float = 1000) -> Object:
    told = {"type": kind, "status": value, "reason": reason, "message": message}
    return told | {"lastTransitionTime": ago(seconds_ago)}


def end(code: int, reason: str = "Error", **more: Any) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": ago(900), "finishedAt": ago(20), **more}}


def wait(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, "message": message}}


def disrupt(reason: str, message: str = "") -> list[Object]:
    return [SCHEDULED, condition("DisruptionTarget", "True", reason, message, 30)]


def warn(reason: str, message: str, seconds_ago: float = 10, **times: Any) -> Object:
    event = {"involvedObject": {"uid": "u-0"}, "type": "Warning", "reason": reason, "message": message}
    return event | (times or {"lastTimestamp": ago(seconds_ago)})


def see(*pods: Object, warnings: tuple[Object, ...] = (), sight: NodeSight | None = None) -> LaunchStatus:
    job = {"metadata": {"name": "a"}, "spec": {}, "status": {}}
    nodes = len(pods)
    return observe(AttemptObjects(job, pods, warnings=warnings), nodes, nodes, sight or NodeSight(NOW, 60), 600)


SCHEDULED = condition("PodScheduled", "True")
RUNNING = {"running": {"startedAt": ago(900)}}

# Kubernetes 1.36, pkg/kubelet/kubelet.go (admissionRejectionReasons), with the names that lifecycle/predicate.go passes
# on from the scheduler (AdmissionCheck), cm/cpumanager and nodeshutdown; Preempting and Terminated end what has begun.
PASSING = [
    "InvalidNodeInfo", "UnexpectedAdmissionError", "UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu",
    "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "OutOfnvidia.com/gpu", "OutOfhugepages-2Mi", "NodeAffinity",
    "NodeName", "NodePorts", "TaintToleration", "Evicted", "TopologyAffinityError", "NodeShutdown", "Shutdown",
    "Terminated", "Preempting", "VolumeAttachmentLimitExceeded", "OutOfunobtainium", "SomethingNewError",
]  # fmt: skip
LASTING = [
    "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",
    "SysctlForbidden", "SMTAlignmentError",
]  # fmt: skip


@pytest.mark.parametrize("reason", PASSING)
@pytest.mark.parametrize("trainer", [None, wait("ContainerCreating")])
def test_a_pod_that_its_node_rejects_is_no_failure_of_the_job(reason: str, trainer: Object | None) -> None:
    status = see(make_pod("Failed", trainer, reason=reason, message="Pod was rejected: it does not fit"))
    assert (status.phase, status.reason in UNCOUNTED) == (ENDED, True)
    assert "it does not fit" in status.message


@pytest.mark.parametrize("reason", LASTING)
def test_a_pod_that_no_node_will_take_is_not_tried_for_ever(reason: str) -> None:
    status = see(make_pod("Failed", reason=reason, message="cannot enforce it"))
    assert (status.phase, status.reason, reason in status.message) == (ENDED, Reason.LAUNCH_FAILED, True)


ENDS: dict[str, tuple[Object, Reason | None, int | None, str]] = {
    # kubernetes-sigs/prow 117: what is left of spot machines
    "node deleted": (
        make_pod("Failed", conditions=disrupt("DeletionByGCPControllerManager", "node no longer exists")),
        Reason.NODE_LOST, None, "node no longer exists"
    ),
    "node shuts down": (
        make_pod("Failed", end(143), reason="Terminated", message="in response to imminent node shutdown."),
        Reason.EVICTED, -15, "imminent node shutdown"
    ),
    # marin-community/marin 7123: Kueue preempts, and the grace period ends with SIGKILL
    "preempted, killed": (
        make_pod("Failed", end(137), conditions=disrupt("PreemptionByScheduler")), Reason.PREEMPTED, -9, "preempted"
    ),
    "disrupted by something new": (
        make_pod("Failed", end(1), conditions=disrupt("TerminationByKueue")), Reason.EVICTED, 1, "TerminationByKueue"
    ),
    # kubernetes/kubernetes 117955: a kubelet that restarts rejects what has completed
    "completed, then rejected": (
        make_pod("Failed", end(0, "Completed"), reason="UnexpectedAdmissionError"), None, 0, ""
    ),
    # kubernetes/kubernetes 61051, spinframework/runtime-class-manager 140: 255 by the program, and by containerd
    "255 of its own": (make_pod("Failed", end(255)), None, 255, ""),
    "255 of a containerd that restarted": (
        make_pod("Failed", end(255, "Unknown", startedAt=None)), Reason.NODE_LOST, 255, "does not know"
    ),
    # PaddlePaddle/PaddleCloud 195, and the same by containerd
    "ContainerCannotRun": (
        make_pod("Failed", end(128, "ContainerCannotRun", startedAt=None, message="mkdir /mnt/hdfs: file exists")),
        Reason.LAUNCH_FAILED, 128, "mkdir /mnt/hdfs"
    ),
    "StartError": (
        make_pod("Failed", end(128, "StartError", startedAt="1970-01-01T00:00:00Z", message="exec: python: not found")),
        Reason.LAUNCH_FAILED, 128, "python: not found"
    ),
    # CRI-O's word for SIGSYS, which the program brings on itself
    "seccomp killed": (make_pod("Failed", end(159, "seccomp killed")), None, -31, ""),
    # istio/istio 11659 and 11045; as native sidecar, which is an init container that ends after the trainer
    "sidecar runs on": (
        make_pod("Running", containerStatuses=[
            {"name": "istio-proxy", "state": RUNNING}, {"name": "trainer", "state": end(0, "Completed")}
        ]), None, 0, ""
    ),
    "sidecar ends first": (
        make_pod("Failed", containerStatuses=[
            {"name": "istio-proxy", "state": end(0)}, {"name": "trainer", "state": end(64)}
        ]), None, 64, ""
    ),
    "native sidecar ends last": (
        make_pod("Failed", end(75), initContainerStatuses=[{"name": "istio-proxy", "state": end(137)}]), None, 75, ""
    ),
    # kubernetes/website 49519
    "Init:Error": (
        make_pod("Failed", wait("PodInitializing"), initContainerStatuses=[
            {"name": "fine", "state": end(0, "Completed")}, {"name": "vault-agent", "state": end(2, message="no role")}
        ]), Reason.LAUNCH_FAILED, None, "an init container, vault-agent, that ended with exit code 2 (Error): no role"
    ),
    "deadline of the pod": (
        make_pod("Failed", end(137), reason="DeadlineExceeded", message="Pod was active on the node longer than"),
        Reason.DEADLINE_EXCEEDED, -9, "active on the node"
    ),
    "nothing said": (make_pod("Failed"), Reason.LOST, None, "does not say why"),
    # The phase that the API describes as an error in communicating with the node
    "phase Unknown": (
        make_pod("Unknown", RUNNING, reason="NodeLost", message="Node n is unresponsive"),
        Reason.NODE_LOST, None, "unresponsive"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_pod_is_told_apart_from_that_of_its_program(name: str) -> None:
    pod, reason, code, words = ENDS[name]
    status = see(pod)
    assert (status.phase, status.reason, status.exit_code) == (ENDED, reason, code)
    assert words in status.message


CREATING = make_pod("Pending", wait("ContainerCreating"))
WAITS: dict[str, tuple[Object, tuple[Object, ...], Reason, str]] = {
    "signature": (make_pod("Pending", wait("SignatureValidationFailed", "not signed")), (),
                  Reason.IMAGE_PULL, "not signed"),
    "registry": (make_pod("Pending", wait("RegistryUnavailable", "QPS exceeded")), (), Reason.IMAGE_PULL, "QPS"),
    "image volume": (make_pod("Pending", wait("ImageVolumeMountFailed")), (), Reason.IMAGE_PULL, "ImageVolumeMount"),
    "something new": (make_pod("Pending", wait("CreateSomethingError", "no")), (), Reason.LAUNCH_FAILED, "no"),
    "without a word": (CREATING, (), Reason.LAUNCH_FAILED, "is being created on its node"),
    # kubernetes/kubernetes 131957, projectcalico/cni-plugin 909, kubernetes/test-infra 13039 (an event of the newer
    # kind); the scheduler's warning is from before the pod had its node
    "claim of a device": (CREATING, (warn("FailedPrepareDynamicResources", "no gRPC client for driver"),),
                          Reason.LAUNCH_FAILED, "(FailedPrepareDynamicResources): no gRPC client for driver"),
    "network": (CREATING, (warn("FailedMount", "old", 500), warn("FailedCreatePodSandBox", "netplugin failed")),
                Reason.LAUNCH_FAILED, "(FailedCreatePodSandBox): netplugin failed"),
    "volume": (CREATING, (warn("FailedMount", "mount failed (Invalid argument)"),),
               Reason.LAUNCH_FAILED, "(FailedMount): mount failed (Invalid argument)"),
    "no addresses": (CREATING, (warn("FailedMount", "old", 500), warn(
        "FailedCreatePodSandBox", "(combined from similar events): no IP addresses available",
        lastTimestamp=None, eventTime=ago(600), series={"lastObservedTime": ago(5), "count": 106}
    )), Reason.LAUNCH_FAILED, "no IP addresses available"),
    "no node before": (CREATING, (warn("FailedScheduling", "0/1 nodes are available", 1500),),
                       Reason.LAUNCH_FAILED, "is being created on its node; that"),
    # kubernetes/kubernetes 83622 and 120234
    "image of an init container": (
        make_pod("Pending", wait("PodInitializing"),
                 initContainerStatuses=[{"name": "init", "state": wait("ImagePullBackOff", "not found")}]), (),
        Reason.IMAGE_PULL, "an init container, init, that cannot pull its image (ImagePullBackOff): not found"
    ),
    "native sidecar crashes": (
        make_pod("Pending", wait("PodInitializing"), initContainerStatuses=[{
            "name": "istio-proxy", "state": wait("CrashLoopBackOff", "back-off 5m0s"), "lastState": end(1)
        }]), (), Reason.LAUNCH_FAILED, "istio-proxy, that does not start (CrashLoopBackOff, exit code 1)"
    ),
    "init container runs on": (
        make_pod("Pending", wait("PodInitializing"), initContainerStatuses=[{"name": "init", "state": RUNNING}]), (),
        Reason.LAUNCH_FAILED, "waits for its init containers"
    ),
    # virtual-kubelet/virtual-kubelet 1257
    "virtual node": (make_pod("Pending", reason="ProviderFailed", message='secret "x" not found'), (),
                     Reason.LAUNCH_FAILED, '(ProviderFailed): secret "x" not found'),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_a_pod_that_does_not_start_on_its_node_says_why_and_ends_in_time(name: str) -> None:
    pod, warnings, reason, words = WAITS[name]
    status = see(pod, warnings=warnings)
    assert (status.phase, status.reason, words in status.message) == (ENDED, reason, True)
    assert "longer than pull_seconds = 600" in status.message
    pod = pod | {"status": pod["status"] | {"conditions": [condition("PodScheduled", "True", seconds_ago=590)]}}
    status = see(pod, warnings=warnings)
    assert (status.phase, words.removesuffix("; that") in status.message) == (PENDING, True)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        # kubernetes-sigs/kueue 9492; DynamicResources of the scheduler
        ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
        ("Unschedulable", "0/3 nodes are available: 3 cannot allocate all claims."),
    ],
)
def test_a_pod_without_a_node_waits_for_one(reason: str, message: str) -> None:
    pod = make_pod("Pending", conditions=[condition("PodScheduled", "False", reason, message, 100_000)])
    status = see(pod | {"spec": {}})
    assert (status.phase, status.reason) == (PENDING, Reason.UNSCHEDULABLE)
    assert message.rstrip(".") in status.message


def test_a_trainer_runs_while_its_sidecar_does_not_yet() -> None:
    proxy = {"name": "istio-proxy", "state": wait("ContainerCreating")}
    assert see(make_pod("Pending", containerStatuses=[proxy, {"name": "trainer", "state": RUNNING}])).phase is ALIVE


def test_a_pod_killed_on_a_node_without_memory_is_no_failure_of_the_job() -> None:
    killed = make_pod("Failed", end(137))
    assert see(killed).reason is None
    assert see(killed, sight=NodeSight(NOW, 60, None, frozenset({"n"}))).reason is Reason.EVICTED


def test_a_pod_that_was_rejected_is_not_waited_for_by_the_others() -> None:
    rejected = make_pod("Failed", index=1, reason="OutOfpods")
    status = see(make_pod("Running", RUNNING), rejected)
    assert (status.phase, status.reason, "a-1" in status.message) == (ENDED, Reason.EVICTED, True)
    fresh = rejected | {"status": rejected["status"] | {"conditions": [condition("PodScheduled", "True", "", "", 5)]}}
    assert see(make_pod("Running", RUNNING), fresh).phase is ALIVE
