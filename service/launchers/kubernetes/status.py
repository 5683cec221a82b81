"""State of an attempt, from the objects that the cluster has of it: a pure function."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dlrm.record import AttemptEnd
from hostinfo.stop_signals import name_signal
from service.launchers.kubernetes.objects import Object, get_part, get_parts, get_text, get_time, join_words
from service.launchers.kubernetes.pods import NodeSight, PodPhase, PodState, read_deleted_pod, read_pod
from service.launchers.protocol import LaunchPhase, LaunchStatus
from service.reasons import Reason

LEAVE_SECONDS = 120.0
"""Seconds after the end of one pod from which on the others no longer get to end by themselves. They end within a
minute of its loss, each with an outcome."""
TOLD_SECONDS = 720.0
"""The same where the pod has left its end: the others may be waiting for the service, for ten minutes, and pod 0 names
the files that count."""
KILLED_SECONDS = 15.0
"""The same if the pod was killed as a whole, or never ran: the others have heard nothing from it, cannot go on without
it, and would miss it only after `run.peer_timeout_seconds`."""
FOLLOW_SECONDS = 15.0
"""The same once pod 0 has ended; it waits for all others that still answer."""
PODS_LATE_SECONDS = 15.0
"""Seconds by which the news of a pod may come after its Job's."""
ON_LOST_NODE = "is on a node that no longer answers"
MAX_NODE_NAMES = 255


@dataclass(frozen=True)
class AttemptObjects:
    """Objects of one attempt; None if absent."""

    job: Object | None
    pods: Sequence[Object]
    deleted_pods: Sequence[Object] = ()
    """Last states of pods that are gone."""
    workload: Object | None = None
    """Workload of Kueue."""
    creation_fault: str = ""
    """Reason why the cluster makes no pods, as its events say."""
    warnings: Sequence[Object] = ()
    """Events that warn of the pods."""


def observe(
    objects: AttemptObjects, num_nodes: int, min_nodes: int, sight: NodeSight, pull_seconds: float
) -> LaunchStatus:
    """Observe the state of an attempt on `num_nodes` nodes, which begins with at least `min_nodes`.

    pull_seconds: see `KubernetesOptions`.
    """
    pods = [read_pod(pod, sight, objects.warnings) for pod in objects.pods]
    if objects.job is None and any(pod.phase in (PodPhase.WAITING, PodPhase.RUNNING) for pod in pods):
        return _describe_alive(pods)
    pods += [read_deleted_pod(pod, sight) for pod in objects.deleted_pods]
    if objects.job is None:
        lost = LaunchStatus(LaunchPhase.ABSENT, Reason.LOST, "its Job is gone: it was deleted, and not by the service")
        end = _describe_end(pods, _choose_cause(pods)) if pods else lost
        return end if end.reason is not None else replace(end, reason=lost.reason, message=lost.message)
    # With a range of nodes some pods may be spare: node 0 alone knows which.
    if (end := _find_end(objects.job, pods, sight.now, may_have_spares=min_nodes < num_nodes)) is not None:
        return end
    num_begun = sum(pod.phase is not PodPhase.WAITING for pod in pods)
    if num_begun >= min_nodes:
        return _describe_alive(pods)
    if (fault := _find_fault(pods, sight.now, pull_seconds)) is not None:
        return _describe_end(pods, fault)
    return _describe_pending(objects, pods, num_nodes)


def _find_end(job: Object, pods: Sequence[PodState], now: datetime, *, may_have_spares: bool) -> LaunchStatus | None:
    """Return the end of an attempt; None while it may go on.

    Pod 0 decides the outcome of all: its end is the attempt's, unless it waits for the others to end too.
    """
    first = next((pod for pod in pods if pod.index == 0), None)
    is_first_gone = first is not None and first.phase in (PodPhase.ENDED, PodPhase.LOST)
    ended = [pod for pod in pods if pod.phase in (PodPhase.ENDED, PodPhase.LOST)]
    num_ended = len(ended)
    if may_have_spares and first is not None:
        ended = [pod for pod in ended if not _was_spare(pod, first)]
    left = [pod for pod in pods if pod.phase is PodPhase.RUNNING]
    condition = _find_final_condition(job)
    if condition is not None and not left:
        if _waits_for_pods(job, condition, num_ended, now):
            return _describe_alive(pods)
        return _describe_end(ended, _choose_cause(ended), condition)
    if is_first_gone and not left:
        return _describe_end(ended, _choose_cause(ended), condition)
    silent = [replace(pod, reason=Reason.NODE_LOST, message=ON_LOST_NODE) for pod in left if pod.is_node_gone]
    if may_have_spares and not is_first_gone:
        # Node 0 notices the loss of a node that trains, and ends; the loss of a spare one matters to nobody.
        return None
    if not any(_is_leaving_late(pod, is_first_gone, now) for pod in ended):
        return None
    killed = [_explain_kill(pod) for pod in ended if _was_killed(pod) and not may_have_spares]
    return _describe_end(ended, _choose_cause([*ended, *silent]) or _choose_cause(killed), condition)


def _was_spare(pod: PodState, first: PodState) -> bool:
    """Whether pod 0 trained on for so long after the end of `pod` that it had no part in the attempt."""
    if pod.ended_at is None or first.ended_at is None:
        return False
    return (first.ended_at - pod.ended_at).total_seconds() > LEAVE_SECONDS


def _is_leaving_late(pod: PodState, is_first_gone: bool, now: datetime) -> bool:
    """Whether the other pods have had their time to end after the end of `pod`."""
    if pod.ended_at is None or (is_first_gone and pod.index != 0):
        return False
    return (now - pod.ended_at).total_seconds() > _choose_limit_seconds(pod, is_first_gone=is_first_gone)


def _choose_limit_seconds(pod: PodState, *, is_first_gone: bool) -> float:
    """Choose the seconds that the other pods have from the end of `pod` on."""
    if is_first_gone:
        return FOLLOW_SECONDS
    has_never_run = pod.exit_code is None and pod.reason is not None
    if has_never_run or _was_killed(pod):
        return KILLED_SECONDS
    end, _ = read_termination(pod.termination_message)
    return LEAVE_SECONDS if end is None else TOLD_SECONDS


def read_termination(message: str) -> tuple[AttemptEnd | None, str]:
    """Read the end that a launch process has left in its container's message, or the last line of its log there.

    Returns None and "" if absent.
    """
    try:
        return AttemptEnd.model_validate_json(message), ""
    except ValueError:
        lines = (line.replace("\0", "").strip() for line in reversed(message.splitlines()))
        return None, next(filter(None, lines), "")


def _was_killed(pod: PodState) -> bool:
    return pod.exit_code is not None and pod.exit_code < 0


def _explain_kill(pod: PodState) -> PodState:
    signal = name_signal(-(pod.exit_code or 0))
    return replace(pod, reason=Reason.WORKER_CRASHED, message=f"was killed by {signal}")


def _waits_for_pods(job: Object, condition: Object, num_ended: int, now: datetime) -> bool:
    """Whether a Job has ended by pods whose ends are still on their way: each kind of object has a watch of its own."""
    status = get_part(job, "status")
    num_counted = int(status.get("succeeded") or 0) + int(status.get("failed") or 0)
    since = get_time(condition, "lastTransitionTime")
    is_recent = since is not None and (now - since).total_seconds() < PODS_LATE_SECONDS
    return num_ended < num_counted and is_recent


def _find_final_condition(job: Object) -> Object | None:
    """Return the condition by which a Job has ended, or is about to; None if it has not."""
    conditions = get_parts(job, "status", "conditions")
    found = {condition["type"]: condition for condition in conditions if condition.get("status") == "True"}
    return found.get("Failed") or found.get("Complete") or found.get("FailureTarget") or found.get("SuccessCriteriaMet")


def _choose_cause(ended: Collection[PodState]) -> PodState | None:
    """Choose the pod whose end explains the attempt's: the first one ended by something else."""
    caused = [pod for pod in ended if pod.reason is not None]
    return min(caused, key=_get_end_order, default=None)


def _get_end_order(pod: PodState) -> tuple[bool, float, int]:
    return pod.ended_at is None, pod.ended_at.timestamp() if pod.ended_at else 0.0, pod.index


def _describe_end(ended: Sequence[PodState], cause: PodState | None, condition: Object | None = None) -> LaunchStatus:
    """Describe an end. condition: of the Job; it has what deleted pods no longer say."""
    reason, message = (cause.reason, f"{cause.name} {cause.message}") if cause is not None else (None, "")
    first = next((pod for pod in ended if pod.index == 0), None)
    teller = first or cause
    if not ended and cause is None and condition is not None:
        reason, message = _explain_condition(condition)
    end, last_line = read_termination(teller.termination_message if teller else "")
    return LaunchStatus(
        LaunchPhase.ENDED,
        reason,
        message,
        node=_join_nodes(ended),
        exit_code=teller.exit_code if teller else None,
        rank_ends=tuple(end.rank_ends) if end else (),
        outcome=end.outcome if end else None,
        last_log_line=last_line,
        model_path=end.model_path if end else None,
        checkpoint=end.checkpoint if end else None,
    )


def _explain_condition(condition: Object) -> tuple[Reason | None, str]:
    text = get_text(condition, "message")
    if condition["type"] in ("Complete", "SuccessCriteriaMet"):
        return None, text
    if condition.get("reason") == "DeadlineExceeded":
        return Reason.DEADLINE_EXCEEDED, text
    if "DisruptionTarget" in text:
        return Reason.EVICTED, text
    return Reason.WORKER_CRASHED, f"its pods are gone: {text}"


def _find_fault(pods: Sequence[PodState], now: datetime, pull_seconds: float) -> PodState | None:
    """Find a pod that does not start on its node; None if each may."""
    placed = [pod for pod in pods if pod.phase is PodPhase.WAITING and pod.placed_at is not None]
    for pod in sorted(placed, key=_get_wait_order):
        # Warnings of other kinds may quote a system's "(Invalid argument)", and pass.
        if pod.reason is Reason.IMAGE_PULL and "(Invalid" in pod.message:
            return pod
        if pod.placed_at is not None and (now - pod.placed_at).total_seconds() > pull_seconds:
            message = f"{pod.message}; that has taken longer than pull_seconds = {pull_seconds:.0f}"
            return replace(pod, reason=pod.reason or Reason.LAUNCH_FAILED, message=message)
    return None


def _get_wait_order(pod: PodState) -> tuple[bool, int]:
    return pod.reason is None, pod.index


def _describe_alive(pods: Sequence[PodState]) -> LaunchStatus:
    return LaunchStatus(LaunchPhase.ALIVE, node=_join_nodes(pods))


def _describe_pending(objects: AttemptObjects, pods: Sequence[PodState], num_nodes: int) -> LaunchStatus:
    """Say what an attempt waits for: Kueue, pods not made yet, or the first waiting pod."""
    node = _join_nodes(pods)
    assert objects.job is not None, "an attempt without a Job is not pending"
    if get_part(objects.job, "spec").get("suspend"):
        return LaunchStatus(LaunchPhase.PENDING, Reason.QUOTA_EXCEEDED, _explain_suspension(objects.workload), node)
    waiting = [pod for pod in pods if pod.phase is PodPhase.WAITING]
    if not waiting:
        reason = Reason.QUOTA_EXCEEDED if "quota" in objects.creation_fault else None
        text = objects.creation_fault or "waits until the cluster has made its pods"
        return LaunchStatus(LaunchPhase.PENDING, reason, text, node)
    pod = min(waiting, key=_get_wait_order)
    started = f" ({num_nodes - len(waiting)} of {num_nodes} pods run)" if num_nodes > 1 else ""
    return LaunchStatus(LaunchPhase.PENDING, pod.reason, f"{pod.name} {pod.message}{started}", node)


def _explain_suspension(workload: Object | None) -> str:
    conditions = get_parts(workload or {}, "status", "conditions")
    for kind, status in (("Evicted", "True"), ("QuotaReserved", "False"), ("Admitted", "False")):
        for condition in conditions:
            if condition.get("type") == kind and condition.get("status") == status:
                return join_words("waits for its queue", get_text(condition, "message"))
    return "waits until its queue admits it"


def _join_nodes(pods: Sequence[PodState]) -> str | None:
    names = dict.fromkeys(pod.node for pod in sorted(pods, key=lambda pod: pod.index) if pod.node)
    return ", ".join(names)[:MAX_NODE_NAMES] or None
