"""State of one pod of an attempt, read from its object."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from service.launchers.kubernetes.names import INDEX_LABEL
from service.launchers.kubernetes.objects import (
    NOTHING,
    Object,
    find_condition,
    get_labels,
    get_part,
    get_parts,
    get_text,
    get_time,
    join_words,
)
from service.launchers.kubernetes.pod import CONTAINER
from service.reasons import Reason

CREATION_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a waiting container that is on its way."""
IMAGE_WAITS = re.compile("Image|Pull|Registry|Signature")
"""Words in the reason of a waiting container whose image is not there."""
LASTING_REFUSALS = re.compile("Forbidden|[Uu]nsupported|NotSupported|DoesNotMatch|Alignment|AppArmor|Seccomp")
"""Words in the reason of a pod that its node refuses for what the pod asks, whatever else the node has to do."""
CLUSTER_ENDS = (
    ("Preempt", Reason.PREEMPTED, "was preempted"),
    ("DeletionBy|NodeLost", Reason.NODE_LOST, "was on a node that is gone, or drained by a taint"),
    ("Evict", Reason.EVICTED, "was evicted"),
    ("Deadline", Reason.DEADLINE_EXCEEDED, "ran for longer than the cluster allows a pod"),
)
"""Words in the reasons of ended pods and of their condition DisruptionTarget, what they mean, and the same to read."""
KILLED_CODES = frozenset({-signal.SIGKILL, -signal.SIGTERM})
"""Exit codes of a container that ends because its pod is deleted."""
OWN_DISK_USE = ("exceeds the limit", "exceeds the total limit", "exceeded its local ephemeral storage limit")
"""Words of a kubelet that evicts a pod because of what the pod itself has written."""
SIGNAL_CODE, NUM_SIGNALS = 128, 64
"""Exit code of a container above which its distance is the number of a signal, and the number of signals."""


class PodPhase(Enum):
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()
    LOST = auto()
    """Deleted or out of sight for long, without a word of its node that its container has ended."""


@dataclass(frozen=True)
class PodState:
    """State of one pod."""

    name: str
    index: int
    """Number of the node within the attempt."""
    phase: PodPhase
    node: str | None
    reason: Reason | None = None
    """Reason for which it waits, or has ended; None if the program itself has decided that."""
    message: str = ""
    """The same in words, to follow the name of the pod."""
    exit_code: int | None = None
    """Exit code of its container, negative where a signal has ended it."""
    termination_message: str = ""
    """Message that the program has left, or the last lines of its log."""
    placed_at: datetime | None = None
    """Time from which it has had a node; None before."""
    ended_at: datetime | None = None
    is_node_gone: bool = False
    """Whether its node does not answer, as far as that is known."""


@dataclass(frozen=True)
class NodeSight:
    """Knowledge of the nodes, to decide whether a pod is lost. lost_seconds: see `KubernetesOptions`."""

    now: datetime
    lost_seconds: float
    ready: frozenset[str] | None = None
    """Names of the nodes that answer; None if they must not be listed."""
    pressed: frozenset[str] = frozenset()
    """Names of the nodes known to be short of memory."""


def read_pod(pod: Object, sight: NodeSight, warnings: Sequence[Object] = ()) -> PodState:
    """Read the state of a pod. warnings: events, among which those about this pod are found."""
    state, pod_phase = get_part(_find_trainer(pod), "state"), get_text(pod, "status", "phase")
    terminated, placed_at = get_part(state, "terminated"), _find_placement_time(pod)
    phase, reason, message, ended_at = PodPhase.WAITING, None, "", get_time(terminated, "finishedAt")
    if terminated or pod_phase in ("Succeeded", "Failed"):
        # Other containers may run on: nobody needs them any more.
        phase, ended_at = PodPhase.ENDED, ended_at or _find_last_change(pod)
        reason, message = _explain_end(pod, terminated, sight)
    elif _is_lost(pod, sight):
        phase = PodPhase.LOST
        words = "was deleted or is out of sight, and its node does not say that it has ended"
        unknown = Reason.NODE_LOST, join_words(words, get_text(pod, "status", "message"))
        reason, message = _explain_disruption(pod) or unknown
    elif "running" in state or pod_phase in ("Running", "Unknown"):
        phase = PodPhase.RUNNING
    else:
        reason, message = _explain_wait(pod, placed_at, warnings)
    index = get_text(get_labels(pod), INDEX_LABEL)
    return PodState(
        name=get_text(pod, "metadata", "name"),
        index=int(index) if index.isdecimal() else 0,
        phase=phase,
        node=get_text(pod, "spec", "nodeName") or None,
        reason=reason,
        message=message,
        exit_code=_read_exit_code(terminated),
        termination_message=get_text(terminated, "message"),
        placed_at=placed_at,
        ended_at=ended_at,
        is_node_gone=_is_node_gone(pod, sight),
    )


def read_deleted_pod(pod: Object, sight: NodeSight) -> PodState:
    """Read the last state of a pod that is gone."""
    state = read_pod(pod, sight)
    if state.phase in (PodPhase.ENDED, PodPhase.LOST):
        return state
    unknown = Reason.LOST, "was deleted, and nobody has said how it ended"
    reason, message = _explain_disruption(pod) or unknown
    return replace(state, phase=PodPhase.LOST, reason=reason, message=message)


def _find_trainer(pod: Object) -> Object:
    """Find the status of the trainer's container; the cluster may have put others beside it."""
    found = (one for one in get_parts(pod, "status", "containerStatuses") if one.get("name") == CONTAINER)
    return next(found, NOTHING)


def _find_placement_time(pod: Object) -> datetime | None:
    # It may have waited for its node for long: nothing has gone wrong on it in that time.
    scheduled, created_at = find_condition(pod, "PodScheduled"), get_time(pod, "metadata", "creationTimestamp")
    if scheduled.get("status") == "True":
        return get_time(scheduled, "lastTransitionTime") or created_at
    return created_at if not scheduled and get_text(pod, "spec", "nodeName") else None


def _find_last_change(pod: Object) -> datetime | None:
    """Find the time from which the conditions of a pod have been as they are."""
    times = [get_time(condition, "lastTransitionTime") for condition in get_parts(pod, "status", "conditions")]
    return max(filter(None, [*times, get_time(pod, "metadata", "creationTimestamp")]), default=None)


def _read_exit_code(terminated: Object) -> int | None:
    code: int | None = terminated.get("exitCode")
    # Runtimes of containers, and their process 1, tell of an end by signal N with code 128 + N.
    return SIGNAL_CODE - code if code and SIGNAL_CODE < code <= SIGNAL_CODE + NUM_SIGNALS else code


def _is_lost(pod: Object, sight: NodeSight) -> bool:
    # `deletionTimestamp` is the time at which the grace period is over. A node that does not answer carries nothing
    # out: Kubernetes has deleted its pods after their toleration of that, and their grace period tells nothing more.
    silent_since = get_time(pod, "metadata", "deletionTimestamp")
    if silent_since is not None and _is_node_gone(pod, sight):
        return True
    if silent_since is None and get_text(pod, "status", "phase") == "Unknown":
        silent_since = _find_last_change(pod)
    return silent_since is not None and (sight.now - silent_since).total_seconds() > sight.lost_seconds


def _is_node_gone(pod: Object, sight: NodeSight) -> bool:
    node = get_text(pod, "spec", "nodeName")
    return bool(node) and sight.ready is not None and node not in sight.ready


def _explain_disruption(pod: Object) -> tuple[Reason, str] | None:
    disruption = find_condition(pod, "DisruptionTarget")
    if disruption.get("status") != "True":
        return None
    return _explain_cause(get_text(disruption, "reason"), get_text(disruption, "message"), "was disrupted")


def _explain_cause(cause: str, text: str, otherwise: str) -> tuple[Reason, str]:
    """Explain the end of a pod by the word that the cluster has for it. otherwise: what any other word means."""
    for pattern, reason, words in CLUSTER_ENDS:
        if re.search(pattern, cause):
            return reason, join_words(words, text)
    return Reason.EVICTED, join_words(f"{otherwise} ({cause})", text)


def _explain_end(pod: Object, terminated: Object, sight: NodeSight) -> tuple[Reason | None, str]:
    """Explain an end that the program has not chosen itself."""
    cause, text = get_text(pod, "status", "reason"), get_text(pod, "status", "message")
    if terminated.get("exitCode") == 0:
        return None, ""
    if terminated.get("reason") == "OOMKilled":
        return Reason.OUT_OF_MEMORY, "was killed by the kernel, since it used more memory than resources.memory"
    if cause == "Evicted" and any(words in text for words in OWN_DISK_USE):
        # The next attempt would write as much: it counts.
        advice = "raise scratch_bytes in the launcher's settings, or give it a prepared_claim"
        return Reason.WORKER_CRASHED, join_words("was evicted because of its own files", f"{text.strip()} ({advice})")
    has_run = bool(terminated) and not _is_unknown(terminated)
    if cause and not has_run and LASTING_REFUSALS.search(cause):
        # Another node may take it, but most likely none does: it counts.
        return Reason.LAUNCH_FAILED, join_words(f"was refused by its node ({cause})", text)
    if cause:
        return _explain_cause(cause, text, f"was {'ended' if has_run else 'refused'} by its node")
    if disruption := _explain_disruption(pod):
        return disruption
    return _explain_container_end(pod, terminated, sight) if has_run else _explain_missing_end(pod, terminated)


def _explain_container_end(pod: Object, terminated: Object, sight: NodeSight) -> tuple[Reason | None, str]:
    """Explain the end of a container about whose pod the cluster says nothing."""
    cause, text, code = get_text(terminated, "reason"), get_text(terminated, "message"), _read_exit_code(terminated)
    started_at = get_time(terminated, "startedAt")
    if cause not in ("", "Error", "Completed") and (started_at is None or started_at.year <= 1970):
        return Reason.LAUNCH_FAILED, join_words(f"could not be started ({cause})", text)
    if code in KILLED_CODES and _was_deleted_first(pod, terminated):
        return Reason.LOST, "was deleted, and not by the service, and ended by that"
    if code == -signal.SIGKILL and get_text(pod, "spec", "nodeName") in sight.pressed:
        return Reason.EVICTED, "was killed on a node that is short of memory"
    return None, ""


def _is_unknown(terminated: Object) -> bool:
    """Whether the exit code is an invention of a node that has lost sight of the container."""
    return "Unknown" in get_text(terminated, "reason")


def _explain_missing_end(pod: Object, terminated: Object) -> tuple[Reason | None, str]:
    """Explain the end of a pod if neither its trainer nor the cluster does."""
    if get_text(pod, "status", "phase") == "Succeeded":
        return None, ""
    if get_text(pod, "metadata", "deletionTimestamp"):
        return Reason.LOST, "was deleted, and not by the service, before it ran or left its end"
    if terminated:
        words = "was on a node that does not know how it ended, as after a restart"
        return Reason.NODE_LOST, join_words(words, get_text(terminated, "message"))
    return _find_start_fault(pod) or (Reason.LOST, "ended before it ran, and the cluster does not say why")


def _was_deleted_first(pod: Object, terminated: Object) -> bool:
    """Whether somebody had asked for the deletion of a pod before its container ended."""
    deleted_at, ended_at = get_time(pod, "metadata", "deletionTimestamp"), get_time(terminated, "finishedAt")
    if deleted_at is None or ended_at is None:
        return False
    grace_seconds = int(get_part(pod, "metadata").get("deletionGracePeriodSeconds") or 0)
    return deleted_at - timedelta(seconds=grace_seconds) <= ended_at


def _explain_wait(pod: Object, placed_at: datetime | None, warnings: Sequence[Object]) -> tuple[Reason | None, str]:
    if placed_at is None:
        scheduled = find_condition(pod, "PodScheduled")
        reason = Reason.UNSCHEDULABLE if scheduled else None
        return reason, join_words("finds no node" if scheduled else "waits for a node", get_text(scheduled, "message"))
    if fault := _find_start_fault(pod):
        return fault
    if cause := get_text(pod, "status", "reason"):
        return Reason.LAUNCH_FAILED, join_words(f"does not start ({cause})", get_text(pod, "status", "message"))
    is_initializing = get_text(_find_trainer(pod), "state", "waiting", "reason") == "PodInitializing"
    words = "waits for its init containers" if is_initializing else "is being created on its node"
    if not (warning := _find_warning(pod, placed_at, warnings)):
        return None, words
    return Reason.LAUNCH_FAILED, join_words(f"{words} ({get_text(warning, 'reason')})", get_text(warning, "message"))


def _find_start_fault(pod: Object) -> tuple[Reason, str] | None:
    """Find what keeps the trainer from starting: its own state, or the state of an earlier container."""
    for container in (*get_parts(pod, "status", "initContainerStatuses"), _find_trainer(pod)):
        name = get_text(container, "name")
        whose = "" if name in ("", CONTAINER) else f"has an init container, {name}, that "
        waiting, ended = get_part(container, "state", "waiting"), get_part(container, "state", "terminated")
        cause, last = get_text(waiting, "reason"), get_part(container, "lastState", "terminated")
        text = get_text(last, "message") or get_text(waiting, "message")
        if cause not in CREATION_WAITS and IMAGE_WAITS.search(cause):
            return Reason.IMAGE_PULL, join_words(f"{whose}cannot pull its image ({cause})", text)
        if cause not in CREATION_WAITS:
            code = f", exit code {last.get('exitCode')}" if last else ""
            return Reason.LAUNCH_FAILED, join_words(f"{whose}does not start ({cause}{code})", text)
        if ended.get("exitCode"):
            reason = Reason.NODE_LOST if _is_unknown(ended) else Reason.LAUNCH_FAILED
            words = f"{whose}ended with exit code {ended['exitCode']} ({get_text(ended, 'reason')})"
            return reason, join_words(words, get_text(ended, "message"))
    return None


def _find_warning(pod: Object, placed_at: datetime, warnings: Sequence[Object]) -> Object:
    """Find the last warning about a pod since it has had its node; empty if there is none."""
    uid = get_text(pod, "metadata", "uid")
    own = [event for event in warnings if get_text(event, "involvedObject", "uid") == uid]
    timed = [(seen_at, event) for event in own if (seen_at := _find_event_time(event)) and seen_at >= placed_at]
    return max(timed, key=lambda found: found[0])[1] if timed else NOTHING


def _find_event_time(event: Object) -> datetime | None:
    """Find when an event has been seen last, of the older kind or the newer one."""
    places = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))
    return next(filter(None, (get_time(event, *place) for place in places)), None)
