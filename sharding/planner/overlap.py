"""Overlap of the exchange with the computation of a step, over the network transport.

It exchanges slice by slice, and the ids of the next batch travel ahead: while one slice trains, the next one's pooled
embeddings and the last one's gradients are on their way. A rank waits where the network is slower than its own work,
and always for the first slice to arrive and for the last one's gradients. On CPUs the sockets take time of the cores
that compute, too.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from sharding.planner.cost_estimator import StepTime
from sharding.planner.slice_size import compute_slice_size
from sharding.planner.types import PlanRequest, TablePlan


def count_slices(request: PlanRequest, tables: Sequence[TablePlan]) -> int:
    """Count the slices in which a share's pooled embeddings travel."""
    columns = sum(block.num_columns for plan in tables if not plan.is_replicated for block in plan.blocks)
    share = math.ceil(request.share_size)
    return math.ceil(share / compute_slice_size(share, columns * request.exchange_bytes, request.chunk_size))


def make_socket_request(request: PlanRequest) -> PlanRequest:
    """Return the request in whose topology links are as fast as the cores of a rank send and receive."""
    topology = request.topology
    # The bandwidth of a link within a node is that of a connection whose ends have a core each.
    bandwidth = topology.intra_node_bandwidth * topology.cores_per_rank / 2
    ranks = replace(topology, num_nodes=topology.world_size, ranks_per_node=1, inter_node_bandwidth=bandwidth)
    return replace(request, topology=ranks)


def hide_exchange(time: StepTime, sockets: StepTime, num_slices: int) -> StepTime:
    """Return the time of a step in which `num_slices` slices travel while the rank computes.

    time: of the step, each term as if it were alone. sockets: the same with the links of `make_socket_request`. Left of
    `ids`, `forward` and `backward` is what the rank waits for, or spends in sockets.
    """
    first = max(time.forward, sockets.forward) / num_slices
    last = max(time.backward, sockets.backward) / num_slices
    rest = 1 - 1 / num_slices
    travelling = time.ids + rest * (time.forward + time.backward)
    sending = sockets.ids + rest * (sockets.forward + sockets.backward)
    computing = time.dense + time.give_back + rest * time.lookup
    waiting = max(travelling - computing, sending)
    # Dense gradients are summed while owners update their rows.
    all_reduce = max(time.all_reduce - time.update, sockets.all_reduce)
    return time._replace(ids=0.0, forward=first + waiting, backward=last, all_reduce=all_reduce)
