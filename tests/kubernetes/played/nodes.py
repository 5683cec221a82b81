"""Nodes of the cluster of a test."""

from typing import Any

from tests.kubernetes.fake.objects import set_condition
from tests.kubernetes.fake.resources import NODES, Json

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
"""Condition of a node whose kubelet runs."""


class Nodes:
    """Machines of the cluster."""

    def __init__(self, api: Any) -> None:
        """Write nodes to `api`, an `Api` or a `RealApi`."""
        self._api = api
        self._stopped: set[str] = set()

    def add(
        self,
        name: str,
        cpu: str = "8",
        memory: str = "32Gi",
        gpus: int = 0,
        labels: dict[str, str] | None = None,
        taints: list[Json] | None = None,
    ) -> Json:
        """Add a node that is ready."""
        node = make_node(name, {"cpu": cpu, "memory": memory}, gpus, labels or {}, taints or [])
        set_condition(node, READY, self._api.clock.timestamp())
        return self._api.create(NODES, "", node)

    def is_alive(self, name: str) -> bool:
        """Whether a node is there and its kubelet runs."""
        return name not in self._stopped

    def stop(self, name: str) -> None:
        """Stop a node without a word, as a loss of power does."""
        self._stopped.add(name)

    def start(self, name: str) -> None:
        """Start a stopped node again."""
        self._stopped.discard(name)
        self.set_condition(name, READY)

    def set_condition(self, name: str, condition: Json) -> None:
        """Write a condition of a node."""
        node, now = self._api.get(NODES, "", name), self._api.clock.timestamp()
        self._api.modify_status(NODES, node, lambda found: set_condition(found, condition, now))


def make_node(name: str, amounts: dict[str, str], gpus: int, labels: dict[str, str], taints: list[Json]) -> Json:
    """Make a node that offers `amounts` and GPUs, whose condition is not known yet."""
    offered = {**amounts, "pods": "110", "ephemeral-storage": "100Gi"}
    if gpus:
        offered["nvidia.com/gpu"] = str(gpus)
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    node: Json = {"metadata": metadata, "spec": {}, "status": {"capacity": offered, "allocatable": dict(offered)}}
    if taints:
        node["spec"]["taints"] = taints
    return node
