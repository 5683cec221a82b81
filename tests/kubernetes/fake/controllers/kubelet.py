"""Kubelets of all nodes: they run pods by the script that a test gives."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.clock import format_time, parse_time
from tests.kubernetes.fake.controllers import pod_status
from tests.kubernetes.fake.controllers.behaviours import KILLED, OUT_OF_MEMORY, Behaviour, Ending
from tests.kubernetes.fake.controllers.mounts import find_missing_reference, find_volume_trouble
from tests.kubernetes.fake.controllers.pod_logs import PodLogs
from tests.kubernetes.fake.controllers.runtimes import BehaviourRule, PodMatcher, Runtime, make_matcher
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.events import EventRecorder
from tests.kubernetes.fake.objects import is_deleting, is_terminal, set_condition
from tests.kubernetes.fake.resources import PODS, Json

FIRST_BACKOFF_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 300.0


class Kubelet:
    """All kubelets. Each round moves every pod at most one stage on."""

    def __init__(self, api: Api, is_node_alive: Callable[[str], bool]) -> None:
        self._api = api
        self._is_node_alive = is_node_alive
        self._events = EventRecorder(api, "kubelet")
        self._rules: list[BehaviourRule] = []
        self._runtimes: dict[str, Runtime] = {}
        self.logs = PodLogs(api, self._runtimes, is_node_alive)

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
        self._rules.insert(0, BehaviourRule(make_matcher(pods), behaviour or Behaviour(), times))

    def end(self, name: str, code: int = 0, message: str = "", namespace: str | None = None) -> None:
        """Have the container of a running pod end."""
        self._runtime_of(name, namespace).told = Ending(code, message=message)

    def run_out_of_memory(self, name: str, namespace: str | None = None) -> None:
        """Have the kernel kill the container of a running pod."""
        self._runtime_of(name, namespace).told = OUT_OF_MEMORY

    def evict(
        self, name: str, message: str = "The node was low on resource: memory. ", namespace: str | None = None
    ) -> None:
        """Have the kubelet evict a running pod for the sake of its node."""
        self._runtime_of(name, namespace).eviction_message = message

    def change(self, name: str, behaviour: Behaviour, namespace: str | None = None) -> None:
        """Change how a pod goes on, such as an image that can be pulled now."""
        runtime = self._runtime_of(name, namespace)
        runtime.behaviour = behaviour

    def write_log(self, name: str, text: str, namespace: str | None = None) -> None:
        """Add to the log of a pod."""
        self._runtime_of(name, namespace).log += text

    def _runtime_of(self, name: str, namespace: str | None) -> Runtime:
        """Return the state of the pod whose name begins so."""
        found = [pod for pod in self._api.list_all(PODS, namespace) if pod["metadata"]["name"].startswith(name)]
        started = [pod for pod in found if pod["metadata"]["uid"] in self._runtimes and not is_terminal(pod)]
        assert len(started) == 1, f"{len(started)} pods of {name!r} are on a node: settle first, or name one"
        return self._runtimes[started[0]["metadata"]["uid"]]

    def sync(self) -> None:
        """Move all pods of living nodes on."""
        pods = self._api.list_all(PODS)
        present = {pod["metadata"]["uid"] for pod in pods}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node and self._is_node_alive(node):
                self._sync_pod(pod)
        for uid in [uid for uid in self._runtimes if uid not in present]:
            # Removed by force: a kubelet kills what it finds without a pod, once its node is back.
            runtime = self._runtimes[uid]
            if self._is_node_alive(runtime.pod["spec"]["nodeName"]):
                self._kill(runtime)
                del self._runtimes[uid]

    def stop(self) -> None:
        """Kill whatever still runs."""
        for runtime in self._runtimes.values():
            self._kill(runtime)

    def _sync_pod(self, pod: Json) -> None:
        runtime = self._runtimes.get(pod["metadata"]["uid"])
        if is_terminal(pod):
            if is_deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds"):
                self._remove(pod)
            return
        if runtime is None:
            runtime = Runtime(pod, self._choose(pod))
            runtime.log = runtime.behaviour.log
            self._runtimes[pod["metadata"]["uid"]] = runtime
        if is_deleting(pod):
            self._terminate(pod, runtime)
        elif runtime.stage == "new" and runtime.behaviour.refusal_reason:
            top = {"reason": runtime.behaviour.refusal_reason, "message": "Pod was rejected: as the test says"}
            self._write(pod, runtime, "Failed", pod_status.waiting_state("ContainerCreating"), is_ready=False, top=top)
        elif runtime.stage == "new":
            runtime.stage = "creating"
            reason = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
            self._write_waiting(pod, runtime, reason, "")
        elif runtime.stage == "creating":
            self._start(pod, runtime)
        elif runtime.stage == "running":
            self._watch_running(pod, runtime)
        elif runtime.stage == "backing off" and self._api.clock.now() >= runtime.restart_at:
            self._start(pod, runtime)

    def _choose(self, pod: Json) -> Behaviour:
        for rule in self._rules:
            if rule.times != 0 and rule.matches(pod):
                if rule.times is not None:
                    rule.times -= 1
                return rule.behaviour
        return Behaviour()

    def _start(self, pod: Json, runtime: Runtime) -> None:
        behaviour = runtime.behaviour
        if trouble := find_volume_trouble(self._api, pod):
            self._record_once(pod, *trouble)
            return
        reason, message = behaviour.waiting_reason, behaviour.waiting_message
        if not reason and (missing_reference := find_missing_reference(self._api, pod)):
            reason, message = "CreateContainerConfigError", missing_reference
        if reason == "ContainerCreating":
            if message:
                self._record_once(pod, "FailedMount", message)
            return
        if reason:
            self._hold(pod, runtime, reason, message)
            return
        runtime.stage = "running"
        runtime.started_at = self._api.clock.now()
        if behaviour.process:
            behaviour.process.start(pod)
        name = pod["spec"]["containers"][0]["name"]
        self._events.record(pod, "Created", f"Created container: {name}")
        self._events.record(pod, "Started", f"Started container {name}")
        self._write(pod, runtime, "Running", self._running_state(runtime), is_ready=behaviour.is_ready)

    def _hold(self, pod: Json, runtime: Runtime, reason: str, message: str) -> None:
        """Write why a container does not start; a pull that fails is backed off from."""
        image = pod["spec"]["containers"][0]["image"]
        statuses: list[Json] = pod["status"].get("containerStatuses") or [{"state": {}}]
        old_reason = statuses[0]["state"].get("waiting", {}).get("reason")
        if reason == "ErrImagePull":
            message = message or (
                f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'
            )
            if old_reason in ("ErrImagePull", "ImagePullBackOff"):
                reason, message = "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {message}'
            else:
                self._record_once(pod, "Failed", f'Failed to pull image "{image}": {message}')
        elif old_reason != reason:
            self._record_once(pod, "Failed", f"Error: {message}")
        self._write_waiting(pod, runtime, reason, message)

    def _record_once(self, pod: Json, reason: str, message: str) -> None:
        if not self._events.has_recorded(pod, reason, message):
            self._events.record(pod, reason, message, is_warning=True)

    def _watch_running(self, pod: Json, runtime: Runtime) -> None:
        behaviour = runtime.behaviour
        message = runtime.eviction_message or behaviour.eviction_message
        if message:
            self._evict(pod, runtime, message)
            return
        ending = runtime.told or _poll(pod, behaviour)
        if ending is None and behaviour.ending:
            has_run_seconds = self._api.clock.now() - runtime.started_at
            ending = behaviour.ending if has_run_seconds >= behaviour.run_seconds else None
        if ending is not None:
            self._finish(pod, runtime, ending)

    def _finish(self, pod: Json, runtime: Runtime, ending: Ending) -> None:
        runtime.told = None
        policy = pod["spec"]["containers"][0].get("terminationMessagePolicy")
        if policy == "FallbackToLogsOnError" and ending.exit_code and not ending.message:
            ending = replace(ending, message="".join(runtime.log.splitlines(keepends=True)[-80:])[-2048:])
        state = self._terminated_state(pod, runtime, ending)
        policy = pod["spec"]["restartPolicy"]
        restarts = not is_deleting(pod) and (policy == "Always" or (policy == "OnFailure" and ending.exit_code != 0))
        if restarts:
            self._back_off(pod, runtime, state)
            return
        runtime.stage = "ended"
        self._write(pod, runtime, "Succeeded" if ending.exit_code == 0 else "Failed", state, is_ready=False)

    def _back_off(self, pod: Json, runtime: Runtime, state: Json) -> None:
        pause = min(FIRST_BACKOFF_SECONDS * 2**runtime.restart_count, MAX_BACKOFF_SECONDS)
        runtime.stage = "backing off"
        runtime.restart_at = self._api.clock.now() + pause
        runtime.previous_log, runtime.log = runtime.log, runtime.behaviour.log
        runtime.last_state = state
        runtime.restart_count += 1
        metadata: Json = pod["metadata"]
        container = pod["spec"]["containers"][0]["name"]
        full_name = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        message = f"back-off {pause:g}s restarting failed container={container} pod={full_name}"
        self._events.record(
            pod, "BackOff", f"Back-off restarting failed container {container} in pod {full_name}", True
        )
        self._write(pod, runtime, "Running", pod_status.waiting_state("CrashLoopBackOff", message), is_ready=False)

    def _evict(self, pod: Json, runtime: Runtime, message: str) -> None:
        self._kill(runtime)
        state = self._terminated_state(pod, runtime, KILLED)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
        self._events.record(pod, "Evicted", message, is_warning=True)
        self._write(pod, runtime, "Failed", state, False, {"reason": "Evicted", "message": message}, condition)

    def _kill(self, runtime: Runtime) -> None:
        if runtime.behaviour.process and runtime.stage == "running":
            runtime.behaviour.process.kill(runtime.pod)
        runtime.stage = "ended"

    def _terminate(self, pod: Json, runtime: Runtime) -> None:
        """End a pod that is being deleted: SIGTERM, and SIGKILL once its grace is over."""
        if runtime.stage != "running":
            runtime.stage = "ended"
            self._write(pod, runtime, "Failed", pod_status.UNKNOWN_STATE, is_ready=False)
            return
        behaviour = runtime.behaviour
        if not runtime.sigterm_sent:
            runtime.sigterm_sent = True
            container = pod["spec"]["containers"][0]["name"]
            self._events.record(pod, "Killing", f"Stopping container {container}")
            if behaviour.process:
                behaviour.process.terminate(pod)
        ending = runtime.told or _poll(pod, behaviour)
        if ending is None and behaviour.process is None and behaviour.ends_on_sigterm:
            ending = behaviour.sigterm_ending
        if ending is None and self._api.clock.now() >= parse_time(pod["metadata"]["deletionTimestamp"]):
            self._kill(runtime)
            ending = KILLED
        if ending is not None:
            self._finish(pod, runtime, ending)

    def _remove(self, pod: Json) -> None:
        """Remove the object of a pod whose containers have all ended."""
        metadata: Json = pod["metadata"]
        options = DeleteOptions(grace_period_seconds=0, uid=metadata["uid"])
        self._api.delete(PODS, metadata["namespace"], metadata["name"], options)

    def _running_state(self, runtime: Runtime) -> Json:
        return {"running": {"startedAt": format_time(runtime.started_at)}}

    def _terminated_state(self, pod: Json, runtime: Runtime, ending: Ending) -> Json:
        identity = pod_status.container_id(pod, pod["spec"]["containers"][0]["name"], runtime.restart_count)
        return pod_status.terminated_state(
            ending, format_time(runtime.started_at), self._api.clock.timestamp(), identity
        )

    def _write_waiting(self, pod: Json, runtime: Runtime, reason: str, message: str) -> None:
        phase = "Running" if runtime.restart_count else "Pending"
        self._write(pod, runtime, phase, pod_status.waiting_state(reason, message), is_ready=False)

    def _write(
        self,
        pod: Json,
        runtime: Runtime,
        phase: str,
        state: Json,
        is_ready: bool,
        top: Json | None = None,
        condition: Json | None = None,
    ) -> None:
        """Write a pod's status. state: of all its containers. top: reason and message of the pod itself."""
        now = self._api.clock.timestamp()

        def change(found: Json) -> None:
            status: Json = found["status"]
            status.update(phase=phase, **(top or {}))
            status["observedGeneration"] = found["metadata"].get("generation", 1)
            status.setdefault("startTime", now)
            node_ip, pod_ip = _addresses(found)
            status.update(hostIP=node_ip, hostIPs=[{"ip": node_ip}])
            if "waiting" not in state or runtime.restart_count:
                status.update(podIP=pod_ip, podIPs=[{"ip": pod_ip}])
            status["containerStatuses"] = [
                pod_status.container_status(found, one, state, runtime.restart_count, runtime.last_state, is_ready)
                for one in found["spec"]["containers"]
            ]
            if found["spec"].get("initContainers"):
                status["initContainerStatuses"] = self._init_statuses(found, runtime, now)
            if condition:
                set_condition(found, condition, now)
            pod_status.set_pod_conditions(found, now)

        self._api.modify_status(PODS, pod, change)

    def _init_statuses(self, pod: Json, runtime: Runtime, now: str) -> list[Json]:
        """Return the statuses of init containers, which all succeed as soon as the pod starts."""
        old = {one["name"]: one for one in pod["status"].get("initContainerStatuses") or []}
        statuses: list[Json] = []
        for container in pod["spec"]["initContainers"]:
            if "terminated" in old.get(container["name"], {}).get("state", {}):
                statuses.append(old[container["name"]])
                continue
            identity = pod_status.container_id(pod, container["name"], 0)
            state = pod_status.waiting_state("PodInitializing")
            if runtime.stage in ("running", "ended") and runtime.started_at:
                state = pod_status.terminated_state(Ending(0), now, now, identity)
            statuses.append(pod_status.container_status(pod, container, state, 0, {}, "terminated" in state))
        return statuses


def _poll(pod: Json, behaviour: Behaviour) -> Ending | None:
    """Return how the process of a container has ended, None while it runs or where there is none."""
    found = None if behaviour.process is None else behaviour.process.poll(pod)
    return Ending(found) if isinstance(found, int) else found


def _addresses(pod: Json) -> tuple[str, str]:
    """Return addresses of a pod's node and of the pod, made up from their names."""
    uid: str = pod["metadata"]["uid"]
    number = sum(map(ord, pod["spec"]["nodeName"])) % 250 + 1
    return f"192.168.0.{number}", f"10.244.{int(uid[:2], 16)}.{int(uid[2:4], 16) % 254 + 1}"
