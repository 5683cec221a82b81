"""Decentralised momentum SGD: each rank averages with its neighbours alone, at every step."""

import torch
import torch.distributed as dist
from torch import Tensor

from dlrm.dense_sync.averaging import DenseAveraging


class DmSgd(DenseAveraging):
    """DmSGD (Yuan et al. 2021, arXiv 2104.11981, algorithm 1), with the mixing matrix w and rank i's gradient g_i:

    m_i = beta m_i + g_i,   x_i = sum over j of w_ij (x_j - lr m_j)

    Each rank's momentum stays its own, as in `DistributedAdaptThenCombineOptimizer` of BlueFog, the library of the
    paper's authors. w is the matrix of its `RingGraph` and its `SymmetricExponentialGraph` (base 2): 1 / (d + 1) for a
    rank itself and for each of its d neighbours.
    """

    @torch.no_grad()
    def update(self, index: int, learning_rate: float) -> None:
        del index, learning_rate
        self._optimizer.step()
        flat = self._copy_weights()
        self._mix(flat)
        self._set_weights(flat)

    def _mix(self, flat: Tensor) -> None:
        """Replace `flat` [P] by the mean of this rank's and its neighbours'."""
        ranks, graph = self._ranks, self._config.graph or "exponential"
        received = {rank: torch.empty_like(flat) for rank in list_neighbours(graph, ranks.rank, ranks.world_size)}
        exchanges = [dist.P2POp(dist.isend, flat, rank, ranks.dense_group) for rank in received]
        exchanges += [dist.P2POp(dist.irecv, tensor, rank, ranks.dense_group) for rank, tensor in received.items()]
        clock, sent_bytes = ranks.exchange_clock, len(received) * flat.nbytes
        with clock.count_flight("dense weights", sent_bytes), clock.count_wait("dense weights"):
            for work in dist.batch_isend_irecv(exchanges):
                work.wait()
        for tensor in received.values():
            flat += tensor
        flat /= len(received) + 1


class DecentLam(DmSgd):
    """DecentLaM (Yuan et al. 2021, arXiv 2104.11981, algorithm 2): neighbours are averaged inside the gradient, so that
    momentum does not add to the bias by which ranks differ:

    g~_i = (x_i - sum over j of w_ij (x_j - lr g_j)) / lr,   m_i = beta m_i + g~_i,   x_i = x_i - lr m_i

    g_j includes weight decay, as in the implementation of Takezawa et al. 2023 (`MomentumTracking`). Weights with a
    rate of 0 keep their own gradient.
    """

    @torch.no_grad()
    def update(self, index: int, learning_rate: float) -> None:
        del index, learning_rate
        settings = {
            parameter: (group["lr"], group["weight_decay"])
            for group in self._optimizer.param_groups
            for parameter in group["params"]
        }
        mixed = self._copy_weights()
        views = self._gradients.unflatten(mixed)
        gradients = self._gradients.unflatten(self._gradients.gradient)
        for parameter, view, gradient in zip(self._parameters, views, gradients, strict=True):
            rate, decay = settings[parameter]
            view.sub_(gradient.add(parameter, alpha=decay), alpha=rate)
        self._mix(mixed)
        for parameter, view, gradient in zip(self._parameters, views, gradients, strict=True):
            rate, decay = settings[parameter]
            if rate > 0:
                # The optimizer adds the decay again.
                torch.sub(parameter, view, out=gradient).div_(rate).sub_(parameter, alpha=decay)
        self._optimizer.step()


def list_neighbours(graph: str, rank: int, num_ranks: int) -> list[int]:
    """List the ranks that exchange weights with `rank`, ascending. graph: "ring" or "exponential"."""
    hops = [1] if graph == "ring" else [2**power for power in range((num_ranks // 2).bit_length())]
    return sorted({(rank + step) % num_ranks for hop in hops for step in (hop, -hop)} - {rank})
