"""Common part of the methods that average dense weights over ranks and leave each rank its own gradient."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dlrm.config import DenseAveragingConfig
from sharding.comm.collectives import start_all_reduce
from sharding.comm.exchange_clock import Waitable
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.embedding import swap_tensors


class DenseAveraging(ABC):
    """Base class of the methods. All ranks make the same calls in the same order.

    A rank's gradient is W times the sum over its own samples, divided by the same number as the sum over the batch: the
    mean of all ranks' gradients is the gradient of the batch, also where the last batch is short.
    """

    def __init__(
        self,
        config: DenseAveragingConfig,
        model: nn.Module,
        gradients: GradientBuffer,
        optimizer: Optimizer,
        ranks: Ranks,
    ) -> None:
        """Begin with the same weights on all ranks. gradients, optimizer: of the parameters of `model`."""
        self._config, self._gradients, self._optimizer, self._ranks = config, gradients, optimizer, ranks
        self._parameters = list(model.parameters())

    @property
    def num_gradients(self) -> int:
        return self._ranks.world_size

    def start(self, *, with_extra_sums: bool) -> Waitable:
        del with_extra_sums
        return _Nothing()

    @abstractmethod
    def update(self, index: int, learning_rate: float) -> None: ...

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Put the model that the run would leave in the place of this rank's weights for a block. Collective.

        An error that leaves the block leaves the model there, as with `WeightAverage`.
        """
        model = self._gradients.unflatten(self._compute_model())
        swap_tensors(model, self._parameters)
        yield
        swap_tensors(model, self._parameters)

    def list_averages(self, named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Return the model that the run would leave, by the names of the parameters. Collective."""
        model = self._gradients.unflatten(self._compute_model())
        return {name: tensor for (name, _), tensor in zip(named_parameters, model, strict=True)}

    def average_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state dict of the ranks' optimizers with the mean over ranks of each tensor. Collective."""
        by_parameter = state["state"].items()
        return {
            **state,
            "state": {
                number: {name: self._average(value) for name, value in values.items()}
                for number, values in by_parameter
            },
        }

    def _compute_model(self) -> Tensor:
        """Compute the mean of all ranks' weights [P]."""
        return self._average(self._copy_weights())

    def _average(self, value: Tensor) -> Tensor:
        """Return the mean of a tensor over ranks; a scalar counts steps, and is the same on all of them."""
        if value.dim() == 0:
            return value
        total = value.to(torch.float32, copy=True)
        self._all_reduce(total)
        return total.div_(self._ranks.world_size).to(value.dtype)

    def _copy_weights(self) -> Tensor:
        """Copy this rank's weights into one tensor [P], in the order of the parameters."""
        return torch.cat([parameter.detach().view(-1) for parameter in self._parameters])

    def _set_weights(self, flat: Tensor) -> None:
        """Set this rank's weights to those in `flat` [P]."""
        for parameter, weights in zip(self._parameters, self._gradients.unflatten(flat), strict=True):
            parameter.copy_(weights)

    def _all_reduce(self, flat: Tensor) -> None:
        """Sum a tensor over ranks in place."""
        start_all_reduce(self._ranks, flat, "dense weights").wait()


class _Nothing:
    """Exchange of no gradients, which has arrived at once."""

    def wait(self) -> None:
        pass
