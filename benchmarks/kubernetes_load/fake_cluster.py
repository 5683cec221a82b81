"""A fake cluster in a process of its own, so that its CPU time is not counted for the service."""

import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.kubernetes.fake.cluster import Cluster

PAUSE_SECONDS = 0.002
"""Pause of the cluster after a round that changed nothing."""
NODES, CORES, MEMORY = 50, "8", "32Gi"
MESSAGE = json.dumps({"outcome": {"state": "succeeded", "reason": "completed", "step": 8}, "rank_ends": []})
"""Termination message of every pod."""


@dataclass(frozen=True)
class Observed:
    """Observations of the cluster so far."""

    num_calls: int
    """Requests to its API, watches included."""
    calls: dict[str, int]
    """Requests by verb and resource."""
    running_at: dict[str, float]
    """Time at which each pod's status said Running, in seconds since the epoch."""
    ended_at: dict[str, float]
    """Time at which it said that the pod has ended."""


@contextmanager
def run_cluster(kubeconfig: Path) -> Iterator[Connection]:
    """Run a cluster for the block, and yield a connection that takes commands: see `_Runner.answer`."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, kubeconfig), daemon=True)
    process.start()
    # Its first word: the kubeconfig is written.
    here.recv()
    try:
        yield here
    finally:
        here.send(("stop", None))
        process.join()


def ask(cluster: Connection, command: str, argument: Any = None) -> Any:
    cluster.send((command, argument))
    return cluster.recv()


def _serve(commands: Connection, kubeconfig: Path) -> None:
    with Cluster(num_nodes=0, ticking=True) as cluster:
        for number in range(NODES):
            cluster.nodes.add(f"node-{number}", cpu=CORES, memory=MEMORY)
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "dlrm-worker"}})
        cluster.write_kubeconfig(kubeconfig)
        commands.send("ready")
        _Runner(cluster, commands).run()


class _Runner:
    """Loop of the cluster, which notes when pods start and end, and carries commands out."""

    def __init__(self, cluster: Cluster, commands: Connection) -> None:
        self._cluster = cluster
        self._commands = commands
        self._running_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}

    def run(self) -> None:
        """Run until the command to stop."""
        while True:
            if self._cluster.step():
                self._note_pods()
                pause = 0.0
            else:
                pause = PAUSE_SECONDS
            if self._commands.poll(pause):
                command, argument = self._commands.recv()
                if command == "stop":
                    return
                self._commands.send(self.answer(command, argument))

    def answer(self, command: str, argument: Any) -> Any:
        """Carry out a command: `end` pods, given by their names, or report what was `observed`."""
        if command == "end":
            for name in argument:
                self._cluster.kubelet.end(name, 0, MESSAGE)
            return None
        requests = self._cluster.recorder.requests()
        calls: dict[str, int] = {}
        for request in requests:
            key = f"{request.verb} {request.resource_name}"
            calls[key] = calls.get(key, 0) + 1
        return Observed(len(requests), calls, dict(self._running_at), dict(self._ended_at))

    def _note_pods(self) -> None:
        now = time.time()
        for pod in self._cluster.pods():
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            if phase == "Running":
                self._running_at.setdefault(name, now)
            elif phase in ("Succeeded", "Failed"):
                self._ended_at.setdefault(name, now)
