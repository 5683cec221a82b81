"""Kubelets of all nodes: they run pods by the script that a test gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.fake.clock import format_time, parse_time
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.objects import is_deleting, is_terminal, labels_of, set_condition
from tests.kubernetes.fake.resources import PODS, Json
from tests.kubernetes.played.behaviours import Behaviour, Ending
from tests.kubernetes.played.events import warn_once

INDEX = "batch.kubernetes.io/job-completion-index"
KILLED = Ending(137)
NEVER_RAN = Ending(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")
LOW_NODE = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
PodMatcher = int | str | None
"""Choice of pods: a completion index, the beginning of a name, or None for all."""


@dataclass
class Rule:
    """Behaviour of some pods. times: pods that it is still good for; None for all."""

    pods: PodMatcher
    behaviour: Behaviour
    times: int | None

    def concerns(self, pod: Json) -> bool:
        """Whether a pod is to behave so."""
        if self.times == 0:
            return False
        if isinstance(self.pods, int):
            return labels_of(pod).get(INDEX) == str(self.pods)
        return pod["metadata"]["name"].startswith(self.pods or "")


@dataclass
class Runtime:
    """Knowledge of a kubelet about one pod."""

    pod: Json
    """Pod as the kubelet first saw it."""
    behaviour: Behaviour
    stage: str = "new"
    """Stage: new, creating, running, or ended."""
    started_at: float = 0.0
    wanted: Ending | None = None
    """End that the test wants."""
    is_asked_to_end: bool = False


class Kubelet:
    """All kubelets. Each round moves every pod at most one stage on."""

    def __init__(self, api: Any, is_node_alive: Callable[[str], bool]) -> None:
        """Write what pods do to `api`, an `Api` or a `RealApi`."""
        self._api = api
        self._is_node_alive = is_node_alive
        self._rules: list[Rule] = []
        self._runtimes: dict[str, Runtime] = {}

    def on_start(
        self,
        pods: PodMatcher | Mapping[int, Behaviour] = None,
        behaviour: Behaviour | None = None,
        times: int | None = None,
    ) -> None:
        """Choose how pods behave from their start on; of rules that match, the last one counts.

        pods: which pods, or a behaviour for each completion index. times: pods that the rule is good for.
        """
        if isinstance(pods, Mapping):
            for index, one in pods.items():
                self.on_start(index, one, times)
            return
        self._rules.insert(0, Rule(pods, behaviour or Behaviour(), times))

    def end(self, name: str, code: int = 0, message: str = "") -> None:
        """Have the container of the running pod whose name begins so end."""
        runtime = self._find(name)
        assert runtime is not None, f"no pod {name!r} is on a node: settle first"
        runtime.wanted = Ending(code, message=message)

    def change(self, name: str, behaviour: Behaviour) -> None:
        """Change how the pod whose name begins so goes on, such as an image that can be pulled now."""
        if (runtime := self._find(name)) is not None:
            runtime.behaviour = behaviour
        else:
            self.on_start(name, behaviour)

    def _find(self, name: str) -> Runtime | None:
        pods = [pod for pod in self._api.list_all(PODS) if pod["metadata"]["name"].startswith(name)]
        alive = [pod["metadata"]["uid"] for pod in pods if not is_terminal(pod)]
        return next((self._runtimes[uid] for uid in alive if uid in self._runtimes), None)

    def look_up(self, pod: Json) -> Runtime:
        """Return what is known of a pod; one that is new gets its behaviour."""
        uid: str = pod["metadata"]["uid"]
        if uid not in self._runtimes:
            rule = next((rule for rule in self._rules if rule.concerns(pod)), None)
            if rule is not None and rule.times is not None:
                rule.times -= 1
            self._runtimes[uid] = Runtime(pod, Behaviour() if rule is None else rule.behaviour)
        return self._runtimes[uid]

    def sync(self) -> None:
        """Move all pods of living nodes on."""
        pods = self._api.list_all(PODS)
        present = {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node and self._is_node_alive(node):
                self._sync_pod(pod)
        for uid in [uid for uid in self._runtimes if uid not in present]:
            # A kubelet kills what it finds without a pod.
            _kill(self._runtimes.pop(uid))

    def stop(self) -> None:
        """Kill whatever still runs."""
        for runtime in self._runtimes.values():
            _kill(runtime)

    def _sync_pod(self, pod: Json) -> None:
        if is_terminal(pod):
            if is_deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds"):
                metadata: Json = pod["metadata"]
                options = DeleteOptions(grace_period_seconds=0, uid=metadata["uid"])
                self._api.delete(PODS, metadata["namespace"], metadata["name"], options)
            return
        runtime = self.look_up(pod)
        if is_deleting(pod):
            self._terminate(pod, runtime)
        elif runtime.stage == "new":
            self._accept(pod, runtime)
        elif runtime.stage == "creating":
            self._start(pod, runtime)
        elif runtime.stage == "running":
            self._look_after(pod, runtime)

    def _accept(self, pod: Json, runtime: Runtime) -> None:
        state = {"waiting": {"reason": "ContainerCreating"}}
        if reason := runtime.behaviour.refusal_reason:
            top = {"reason": reason, "message": "Pod was rejected: as the test says"}
            self._write(pod, "Failed", state, top)
            return
        runtime.stage = "creating"
        self._write(pod, "Pending", state)

    def _start(self, pod: Json, runtime: Runtime) -> None:
        behaviour = runtime.behaviour
        reason, message = behaviour.waiting_reason, behaviour.waiting_message
        if reason == "ContainerCreating":
            warn_once(self._api, pod, "FailedMount", message)
            return
        if reason:
            old_reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            if reason == "ErrImagePull" and old_reason != "ContainerCreating":
                # A pull that has failed is backed off from.
                reason, message = "ImagePullBackOff", f"Back-off pulling image: ErrImagePull: {message}"
            self._write(pod, "Pending", {"waiting": {"reason": reason, "message": message}})
            return
        runtime.stage, runtime.started_at = "running", self._api.clock.now()
        if behaviour.process:
            behaviour.process.start(pod)
        self._write(pod, "Running", {"running": {"startedAt": format_time(runtime.started_at)}})

    def _look_after(self, pod: Json, runtime: Runtime) -> None:
        behaviour = runtime.behaviour
        if behaviour.eviction_message:
            top = {"reason": "Evicted", "message": behaviour.eviction_message}
            condition = {**LOW_NODE, "message": behaviour.eviction_message}
            self._finish(pod, runtime, KILLED, top, condition)
            return
        ending = runtime.wanted or (behaviour.process.poll(pod) if behaviour.process else None)
        if ending is None and self._api.clock.now() - runtime.started_at >= behaviour.run_seconds:
            ending = behaviour.ending
        if ending is not None:
            self._finish(pod, runtime, ending)

    def _terminate(self, pod: Json, runtime: Runtime) -> None:
        """End a pod that is being deleted: SIGTERM, and SIGKILL once its grace is over."""
        if runtime.stage != "running":
            self._finish(pod, runtime, NEVER_RAN)
            return
        process = runtime.behaviour.process
        if process and not runtime.is_asked_to_end:
            process.terminate(pod)
        runtime.is_asked_to_end = True
        ending = runtime.wanted or (process.poll(pod) if process else None) or runtime.behaviour.sigterm_ending
        if ending is None and self._api.clock.now() >= parse_time(pod["metadata"]["deletionTimestamp"]):
            _kill(runtime)
            ending = KILLED
        if ending is not None:
            self._finish(pod, runtime, ending)

    def _finish(
        self, pod: Json, runtime: Runtime, ending: Ending, top: Json | None = None, condition: Json | None = None
    ) -> None:
        runtime.stage = "ended"
        terminated: Json = {
            "exitCode": ending.exit_code,
            "reason": ending.reason or ("Completed" if ending.exit_code == 0 else "Error"),
            "message": ending.message,
        }
        if ending is not NEVER_RAN:
            terminated["startedAt"] = format_time(runtime.started_at)
            terminated["finishedAt"] = self._api.clock.timestamp()
        phase = "Succeeded" if ending.exit_code == 0 else "Failed"
        self._write(pod, phase, {"terminated": terminated}, top, condition)

    def _write(
        self, pod: Json, phase: str, state: Json, top: Json | None = None, condition: Json | None = None
    ) -> None:
        """Write a pod's status. state: of all its containers. top: reason and message of the pod itself."""
        now, is_ready = self._api.clock.timestamp(), "running" in state
        of_all = {"imageID": "", "state": state, "lastState": {}, "ready": is_ready, "restartCount": 0}

        def change(found: Json) -> None:
            status: Json = found["status"]
            status.update(phase=phase, **(top or {}))
            status.setdefault("startTime", now)
            status["containerStatuses"] = [
                {"name": one["name"], "image": one["image"], **of_all} for one in found["spec"]["containers"]
            ]
            for kind in ("Ready", "ContainersReady"):
                set_condition(found, {"type": kind, "status": str(is_ready)}, now)
            if condition:
                set_condition(found, condition, now)

        self._api.modify_status(PODS, pod, change)


def _kill(runtime: Runtime) -> None:
    if runtime.behaviour.process and runtime.stage == "running":
        runtime.behaviour.process.kill(runtime.pod)
    runtime.stage = "ended"
