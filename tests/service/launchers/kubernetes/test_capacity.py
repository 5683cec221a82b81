"""Resources of a cluster, as its nodes say them."""

from typing import Any

from service.launchers.kubernetes.capacity import sum_nodes
from service.launchers.kubernetes.options import KubernetesOptions
from service.launchers.protocol import Capacity, NamedCapacity

OPTIONS = KubernetesOptions(image="trainer:1", ingest_url="http://dlrm:8080", runs_claim="runs")


def make_node(name: str, num_cores: int, *, is_ready: bool = True) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    allocatable = {"cpu": str(num_cores), "memory": "8Gi"}
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [condition], "allocatable": allocatable},
    }


def test_usable_nodes_are_listed_by_name_with_what_each_has() -> None:
    # Two nodes of one kind, and one that takes no pods.
    capacity = sum_nodes([make_node("b", 4), make_node("a", 4), make_node("c", 64, is_ready=False)], OPTIONS)
    node = Capacity(4, 8 * 2**30, 0)
    assert capacity.nodes == (NamedCapacity("a", node), NamedCapacity("b", node))
    assert capacity.total == node.times(2)
