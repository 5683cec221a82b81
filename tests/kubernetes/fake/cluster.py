"""The fake cluster: a server, what it plays, and the handles by which tests steer it."""

import threading
import traceback
from typing import Self

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.clock import Clock
from tests.kubernetes.fake.http_server import HttpServer
from tests.kubernetes.fake.jobs import Jobs
from tests.kubernetes.fake.requests import Dispatcher
from tests.kubernetes.fake.resources import BUILT_IN, KUEUE, PODS, Catalogue, Json
from tests.kubernetes.fake.store import Store
from tests.kubernetes.handles import ClusterHandles
from tests.kubernetes.played.kubelet import Kubelet
from tests.kubernetes.played.kueue import Kueue
from tests.kubernetes.played.nodes import Nodes

MAX_ROUNDS = 500
"""Rounds after which a cluster that still changes is taken to run in a circle."""
POLL_SECONDS = 0.02
"""Pause of the background thread after a round that changed nothing."""
PREEMPTION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "default-scheduler: preempting to accommodate a higher priority pod",
}
TAINT = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class Cluster(ClusterHandles):
    """One fake cluster with the namespace `default`, and its API on `url`.

    Its clock stands still until `advance`, unless it is ticking, which real processes need.
    """

    def __init__(self, num_nodes: int = 1, has_kueue: bool = False, ticking: bool = False) -> None:
        self.namespace = "default"
        self.clock = Clock(ticking)
        self.catalogue = Catalogue([*BUILT_IN, *(KUEUE if has_kueue else ())])
        self.store = Store()
        self.api = Api(self.store, self.catalogue, self.clock)
        self.nodes = Nodes(self.api)
        self.kubelet = Kubelet(self.api, self.nodes.is_alive)
        self.kueue = Kueue(self.api, self.namespace)
        self._jobs = Jobs(self.api, self.kubelet)
        self.server = HttpServer(Dispatcher(self.api), self.catalogue)
        self._background: threading.Thread | None = None
        self._stopping = threading.Event()
        for number in range(num_nodes):
            self.nodes.add(f"node-{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def settle(self) -> None:
        """Play until nothing changes any more. Time stands still meanwhile."""
        for _ in range(MAX_ROUNDS):
            if not self.step():
                return
        raise AssertionError(f"the cluster still changes after {MAX_ROUNDS} rounds")

    def step(self) -> bool:
        """Play one round. Return whether anything changed."""
        with self.store.lock:
            before = self.store.revision
            self.kueue.sync()
            self._jobs.play()
            self.kubelet.sync()
            return self.store.revision != before

    def lose_node(self, name: str) -> None:
        """Stop a node without a word, and do what a cluster does once the tolerations of its pods are over."""
        self.nodes.stop(name)
        silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        self.nodes.set_condition(name, silent)
        for pod in self.api.list_all(PODS):
            if pod["spec"].get("nodeName") == name:
                self.api.disrupt(pod, TAINT)

    def preempt(self, pod: Json) -> None:
        """Delete a pod for one of a higher priority."""
        self.api.disrupt(pod, PREEMPTION)

    def forbid_pods(self) -> None:
        """Allow no pods any more, by a quota `none`."""
        why = "exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0"
        self.refuse_pods(f'pods "a" is forbidden: {why}')

    def refuse_pods(self, message: str) -> None:
        """Make no pods of Jobs any more; an event says why."""
        self._jobs.refusal = message

    def run_in_background(self) -> None:
        """Play in a thread of its own from now on."""
        self._background = threading.Thread(target=self._run, daemon=True, name="fake cluster")
        self._background.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                has_changed = self.step()
            except Exception:
                self.server.crashes.append(traceback.format_exc())
                return
            if not has_changed:
                self._stopping.wait(POLL_SECONDS)

    def stop(self) -> None:
        """Stop the server and the background thread."""
        self._stopping.set()
        if self._background is not None:
            self._background.join()
        self.kubelet.stop()
        self.server.stop()
