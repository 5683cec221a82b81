"""Room for the copies of a checkpoint in the memory of the job."""

from dataclasses import dataclass

import psutil

from hostinfo.process_memory import get_bytes_below_peak, get_tree_memory_bytes
from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks


@dataclass(frozen=True)
class Headroom:
    """Memory of a node: what the copies of its ranks take, and what is free for them."""

    copy_bytes: int
    free_bytes: int

    @property
    def spare_bytes(self) -> int:
        """Below 0 if the copies do not fit."""
        return self.free_bytes - self.copy_bytes


def find_least_headroom(ranks: Ranks, copy_bytes: int, memory_bytes: int, ranks_per_node: int) -> Headroom:
    """Return the headroom of the node that has the least to spare. Collective, over the group of the background.

    Free is what steps and evaluations left so at their peak. copy_bytes: of the copy on this rank. memory_bytes: limit
    of the job's processes on each node.
    """
    group = ranks.background_group
    by_rank = all_gather_object(group, (copy_bytes, get_bytes_below_peak()))
    first = ranks.rank // ranks_per_node * ranks_per_node
    node = by_rank[first : first + ranks_per_node]
    node_copy_bytes, below_peak_bytes = sum(copy for copy, _ in node), sum(below for _, below in node)
    free_bytes = 0
    if ranks.rank == first:
        free_bytes = count_free_bytes(memory_bytes, node_copy_bytes + below_peak_bytes) - below_peak_bytes
    by_node = all_gather_object(group, Headroom(node_copy_bytes, free_bytes))[::ranks_per_node]
    return min(by_node, key=lambda headroom: headroom.spare_bytes)


def count_free_bytes(memory_bytes: int, enough_bytes: int) -> int:
    """Return how many of `memory_bytes` the job's processes on this node leave free, counted as the service counts
    them near their limit.

    These processes are the launch process, which is the parent of this one, and all its descendants. Returns 0 if this
    process has no parent. enough_bytes: if at least so many are free, fewer than are may be returned, and the kernel is
    spared a look through all pages.
    """
    launch = psutil.Process().parent()
    used = get_tree_memory_bytes(launch, exact_above=memory_bytes - enough_bytes) if launch else 0
    # 0: the launch process has just ended, so that nothing is known about the job's memory.
    return memory_bytes - used if used else 0
