"""Elastic averaging SGD: a force between each rank's weights and a centre, the same on all ranks."""

import torch
from torch import Tensor

from dlrm.dense_sync.averaging import DenseAveraging

MOVING_RATE = 0.9
"""Part of the way from the centre to the mean of all ranks that the centre moves in an exchange: beta in the paper,
whose value mpiT has for every number of ranks and of steps between exchanges."""


class ElasticAveraging(DenseAveraging):
    """Synchronous EASGD (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, equations 5 and 6) at the steps t that are
    multiples of `every`, with the update u_i of rank i's optimizer:

    x_i = x_i + u_i - alpha (x_i - c),   c = c + alpha (sum over ranks of x_i - c),   alpha = lr rho

    with x_i and c on the right as they were before step t, as in the authors' program mpiT. The paper's u_i is -lr g_i,
    or a step of Nesterov's momentum (EAMSGD); torch's `nesterov` keeps the weights that have looked ahead, and the
    force acts on those. alpha is at most 1 / W, so that the centre never moves beyond the mean (the paper's beta =
    W alpha is at most 1). All ranks exchange at the same steps. The asynchronous EASGD is not offered: ranks wait for
    each other at every step anyway, for rows of the tables.
    """

    _centre: Tensor | None = None

    @torch.no_grad()
    def update(self, index: int, learning_rate: float) -> None:
        centre = self._compute_model()
        if index % self._config.interval:
            self._optimizer.step()
            return
        distances = self._copy_weights() - centre
        self._optimizer.step()
        rho, num_ranks = self._config.rho, self._ranks.world_size
        alpha = MOVING_RATE / num_ranks if rho is None else min(rho * learning_rate, 1.0 / num_ranks)
        self._set_weights(self._copy_weights().sub_(distances, alpha=alpha))
        self._all_reduce(distances)
        centre.add_(distances, alpha=alpha)

    def _compute_model(self) -> Tensor:
        """Return the centre [P], not copied; it begins at the weights of all ranks before the first step."""
        if self._centre is None:
            self._centre = self._copy_weights()
        return self._centre
