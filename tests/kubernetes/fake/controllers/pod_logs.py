"""Logs of containers, as kubelets hand them to the API server."""

from collections.abc import Callable, Iterator

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.controllers.runtimes import Runtime
from tests.kubernetes.fake.errors import ApiError, bad_request
from tests.kubernetes.fake.resources import Json


class PodLogs:
    """Logs of all pods that kubelets know."""

    def __init__(self, api: Api, runtimes: dict[str, Runtime], is_node_alive: Callable[[str], bool]) -> None:
        self._api = api
        self._runtimes = runtimes
        self._is_node_alive = is_node_alive

    def read(self, pod: Json, query: dict[str, str]) -> Iterator[bytes | None]:
        """Return the log of a pod's container as a stream. Raises 400 before the container has started."""
        name: str = pod["metadata"]["name"]
        containers = [one["name"] for one in pod["spec"]["containers"]]
        container = query.get("container") or containers[0]
        if container not in containers:
            raise bad_request(f"container {container} is not valid for pod {name}")
        runtime = self._runtimes.get(pod["metadata"]["uid"])
        node: str = pod["spec"].get("nodeName", "")
        if runtime is None or not node:
            raise bad_request(f"pod {name} does not have a host assigned")
        if not self._is_node_alive(node):
            address = f"{pod['status'].get('hostIP', node)}:10250"
            path = f"containerLogs/{pod['metadata']['namespace']}/{name}/{container}"
            raise ApiError(500, "", f'Get "https://{address}/{path}": dial tcp {address}: connect: no route to host')
        if query.get("previous", "").lower() == "true":
            if not runtime.restart_count:
                raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
            return iter([runtime.previous_log.encode()])
        if runtime.stage in ("new", "creating") and not runtime.restart_count:
            reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            wait = "trying and failing to pull image" if "Image" in reason else reason
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {wait}')
        return self._stream_log(runtime, query)

    def _stream_log(self, runtime: Runtime, query: dict[str, str]) -> Iterator[bytes | None]:
        text = runtime.log
        sent = len(text)
        if "tailLines" in query:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[max(0, len(lines) - int(query["tailLines"])) :])
        if "limitBytes" in query:
            text = text[: int(query["limitBytes"])]
        if text:
            yield text.encode()
        while query.get("follow", "").lower() == "true":
            with self._api.store.changed:
                if len(runtime.log) == sent and runtime.stage != "ended":
                    self._api.store.changed.wait(0.02)
                added, sent = runtime.log[sent:], len(runtime.log)
            if added:
                yield added.encode()
            elif runtime.stage == "ended":
                return
            else:
                yield None
