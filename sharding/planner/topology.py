"""What the ranks of a job run on: how many, what memory they have, how fast it and the links between them are."""

from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda"]
Transport = Literal["memory", "network"]

GPU_MEMORY_BANDWIDTH = 2.0e12
"""Bytes a second that a GPU reads and writes its memory at: an A100 of 80 GB, by its data sheet."""
GPU_LINK_BANDWIDTH = 3.0e11
"""Bytes a second from one GPU to the others of its node, each way: NVLink 3."""
NODE_LINK_BANDWIDTH = {"cuda": 2.5e10, "cpu": 1.25e9}
"""Bytes a second from one rank to those of other nodes: a link of 200 Gbit/s for each GPU; 10 Gbit/s between CPUs."""
GPU_FLOPS = 6.0e13
"""Floating-point operations a second of the dense part: an A100's TF32 peak of 156 TFLOP/s, two fifths of it."""


@dataclass(frozen=True)
class Topology:
    """Ranks are numbered node by node."""

    num_nodes: int
    ranks_per_node: int
    device: Device
    memory_bytes: int
    """On CPUs of a node, shared by its ranks; on GPUs of each rank."""
    memory_bandwidth: float
    """Bytes a second that one rank reads and writes at while the others do."""
    intra_node_bandwidth: float
    """Bytes a second from one rank to those of its node, while the others send too."""
    inter_node_bandwidth: float
    """Bytes a second from one rank to those of other nodes, while the others send too."""
    cores_per_rank: float = 1
    """That look rows up and update them; on GPUs it does not matter."""
    flops: float | None = None
    """Floating-point operations a second of one rank in the dense part; None where that is not known."""
    sources: tuple[tuple[str, str], ...] = ()
    """By figure, where it comes from: measured, default, or the job."""

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @property
    def ranks_per_memory_domain(self) -> int:
        """Ranks that share one memory."""
        return self.ranks_per_node if self.device == "cpu" else 1

    @property
    def num_memory_domains(self) -> int:
        return self.world_size // self.ranks_per_memory_domain

    def memory_domain(self, rank: int) -> int:
        """The memory of a rank, counted from 0."""
        return rank // self.ranks_per_memory_domain

    def node(self, rank: int) -> int:
        return rank // self.ranks_per_node

    def ranks_of_node(self, node: int) -> range:
        return range(node * self.ranks_per_node, (node + 1) * self.ranks_per_node)

    def seconds_to_all(self, num_bytes: float) -> float:
        """Of one rank that sends so many bytes evenly to all, itself included, while all others do the same."""
        share = num_bytes / self.world_size
        within = share * (self.ranks_per_node - 1) / self.intra_node_bandwidth
        between = share * (self.world_size - self.ranks_per_node) / self.inter_node_bandwidth
        return max(within, between)

    def seconds_to_sum(self, num_bytes: float) -> float:
        """Of an all-reduce of so many bytes: within nodes first, each rank then sends its part between them."""
        n, nodes = self.ranks_per_node, self.num_nodes
        within = 2 * num_bytes * (n - 1) / n / self.intra_node_bandwidth
        return within + 2 * num_bytes / n * (nodes - 1) / nodes / self.inter_node_bandwidth
