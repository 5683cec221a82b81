"""Local SGD: ranks train by themselves, and take the mean of their weights every few steps."""

import torch

from dlrm.dense_sync.averaging import DenseAveraging


class LocalSgd(DenseAveraging):
    """Local SGD (Stich 2019, arXiv 1805.09767, algorithm 1), at step t with the update u_i of rank i's optimizer:

    x_i = x_i + u_i,   then, if t + 1 is a multiple of `every`,   x_i = mean over ranks of x

    The paper's u_i is -lr g_i; any optimizer makes it here. Its state stays each rank's own, as with
    torch's `PeriodicModelAverager`. Post-local SGD (Lin et al. 2020, arXiv 1808.07217), which sums gradients in the
    first part of a run, is not offered.
    """

    @torch.no_grad()
    def update(self, index: int, learning_rate: float) -> None:
        del learning_rate
        self._optimizer.step()
        if (index + 1) % self._config.interval == 0:
            self._set_weights(self._average(self._copy_weights()))
