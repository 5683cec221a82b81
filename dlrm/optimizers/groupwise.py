"""Common part of the optimizers that torch does not have: they step group by group."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import ParamsT

from dlrm.optimizers.uncompiled import Uncompiled


class GroupwiseOptimizer(Uncompiled):
    """Base class that steps group by group, all tensors of a group at once."""

    SETTINGS: ClassVar[dict[str, Any]] = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    """Settings of a group beside its learning rate, with their defaults."""

    def __init__(self, params: ParamsT, *, lr: float, **settings: Any) -> None:
        """Begin without state. settings: some of `SETTINGS`. Raises TypeError for others."""
        if unknown := settings.keys() - self.SETTINGS.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        super().__init__(params, {"lr": lr, **self.SETTINGS, **settings})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Make one step with the gradients in `.grad`; parameters without a gradient stay as they are.

        Returns the loss of `closure`; None without one.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step_group(group, parameters, [parameter.grad for parameter in parameters])
        return loss

    @abstractmethod
    def _step_group(
        self, group: dict[str, Any], parameters: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None: ...


class AveragingOptimizer(GroupwiseOptimizer):
    """Base class of optimizers that keep an average of the weights, for evaluation and export.

    Their beta1 is the share of the average in the weights that are trained, not the share of a mean.
    """

    average_weight = 1.0
    """Factor by which the next step counts in the average."""

    @abstractmethod
    def swap_in(self) -> AbstractContextManager[None]:
        """Put the average in the place of the parameters for a block, after which they are as before.

        An error that leaves the block leaves the average there, as with `WeightAverage`.
        """

    @abstractmethod
    def list_copies(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """Return what a parameter is interpolated from, not copied; empty before its first step."""

    @abstractmethod
    def restart(self) -> None:
        """Begin a new run at the average, which forgets the steps so far."""

    @abstractmethod
    def list_averages(self, named_parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return the average of each parameter by its name, not copied: the parameter itself before its first step."""
