"""Statuses of pods, as a kubelet writes them."""

import hashlib

from tests.kubernetes.fake.controllers.behaviours import Ending
from tests.kubernetes.fake.objects import set_condition
from tests.kubernetes.fake.resources import Json

OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
"""Conditions that the kubelet writes; it leaves others as they are."""


def container_id(pod: Json, name: str, restart_count: int) -> str:
    """Return the id of a container, the same for the same pod, container and number of restarts."""
    text = f"{pod['metadata']['uid']}/{name}/{restart_count}"
    return f"containerd://{hashlib.sha256(text.encode()).hexdigest()}"


def waiting_state(reason: str, message: str = "") -> Json:
    """Return the state of a container that has not started."""
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def terminated_state(ending: Ending, started_at: str, finished_at: str, identity: str) -> Json:
    """Return the state of a container that has ended."""
    state: Json = {
        "exitCode": ending.exit_code,
        "reason": ending.reason or ("Completed" if ending.exit_code == 0 else "Error"),
        "startedAt": started_at,
        "finishedAt": finished_at,
        "containerID": identity,
    }
    if ending.message:
        state["message"] = ending.message
    if ending.signal:
        state["signal"] = ending.signal
    return {"terminated": state}


UNKNOWN_STATE = {
    "terminated": {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    }
}
"""State of a container that never ran, once its pod is terminated."""


def container_status(
    pod: Json, container: Json, state: Json, restart_count: int, last_state: Json, ready: bool
) -> Json:
    """Return the status of one container."""
    image: str = container["image"]
    has_run = "waiting" not in state and state != UNKNOWN_STATE
    status: Json = {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "state": state,
        "lastState": last_state,
        "ready": ready,
        "started": "running" in state,
        "restartCount": restart_count,
    }
    if has_run:
        status["imageID"] = f"{image.partition(':')[0]}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"
        status["containerID"] = container_id(pod, container["name"], restart_count)
    return status


def set_pod_conditions(pod: Json, now: str) -> None:
    """Set the kubelet's conditions as they follow from the phase and the containers' states."""
    status: Json = pod["status"]
    phase: str = status["phase"]
    statuses: list[Json] = status.get("containerStatuses") or []
    reason, message = "", ""
    if phase == "Succeeded":
        reason = "PodCompleted"
    elif phase == "Failed":
        reason = "PodFailed"
    elif unready := [one["name"] for one in statuses if not one["ready"]]:
        reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    ready = "False" if reason else "True"
    has_sandbox = any("running" in one["state"] for one in statuses) or (
        phase == "Pending"
        and any(one["state"].get("waiting", {}).get("reason") not in _BEFORE_SANDBOX for one in statuses)
    )
    conditions: list[Json] = [
        {"type": "PodReadyToStartContainers", "status": str(has_sandbox)},
        _initialized(status),
        {"type": "Ready", "status": ready, "reason": reason, "message": message},
        {"type": "ContainersReady", "status": ready, "reason": reason, "message": message},
        {"type": "PodScheduled", "status": "True"},
    ]
    # The kubelet's own conditions stand behind those of others.
    old: list[Json] = status.get("conditions") or []
    status["conditions"] = sorted(old, key=lambda one: _place(one["type"]))
    for condition in conditions:
        given = {key: value for key, value in condition.items() if value}
        given["observedGeneration"] = pod["metadata"].get("generation", 1)
        set_condition(pod, given, now)
    status["conditions"].sort(key=lambda one: _place(one["type"]))


_BEFORE_SANDBOX = ("ContainerCreating", "PodInitializing")


def _place(condition_type: str) -> int:
    return OWN_CONDITIONS.index(condition_type) if condition_type in OWN_CONDITIONS else -1


def _initialized(status: Json) -> Json:
    incomplete = [
        one["name"]
        for one in status.get("initContainerStatuses") or []
        if one["state"].get("terminated", {}).get("exitCode") != 0 and "running" not in one["state"]
    ]
    if incomplete and status["phase"] != "Succeeded":
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        return {"type": "Initialized", "status": "False", "reason": "ContainersNotInitialized", "message": message}
    reason = "PodCompleted" if status["phase"] == "Succeeded" else ""
    return {"type": "Initialized", "status": "True", "reason": reason}
