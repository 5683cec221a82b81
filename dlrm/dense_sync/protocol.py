"""The interface between the training step and what keeps the ranks' dense parameters together, and its default."""

from dataclasses import dataclass
from typing import Protocol

from torch.optim import Optimizer

from sharding.comm.exchange_clock import Waitable
from sharding.comm.gradient_buffer import GradientBuffer


class DenseSync(Protocol):
    """Way in which ranks share what they learn of the dense parameters. Its calls are collective."""

    @property
    def num_gradients(self) -> int:
        """Number of gradients whose mean is the gradient of a batch: 1 if ranks sum theirs, else one for each rank."""
        ...

    def start(self, *, with_extra_sums: bool) -> Waitable:
        """Start to exchange gradients, after a vote; `wait()` on the result before reading them.

        with_extra_sums: whether the extra sums of the gradient buffer are summed over ranks too.
        """
        ...

    def update(self, index: int, learning_rate: float) -> None:
        """Update the dense parameters by the gradients in their `.grad`.

        index: number of the batch in the run. learning_rate: rate of the step, which the optimizer's groups have too.
        """
        ...


@dataclass(frozen=True)
class AllReduce:
    """Sums the gradients over ranks, so that all make the same update."""

    gradients: GradientBuffer
    optimizer: Optimizer
    num_gradients: int = 1

    def start(self, *, with_extra_sums: bool) -> Waitable:
        return self.gradients.start_all_reduce(with_extra_sums=with_extra_sums)

    def update(self, index: int, learning_rate: float) -> None:
        del index, learning_rate
        self.optimizer.step()
