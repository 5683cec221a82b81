"""Sums over the samples of a batch in one flat buffer, added up over ranks."""

from collections.abc import Sequence

import torch

from sharding.comm.all_reduce import AllReduceWork, make_all_reducer
from sharding.comm.process_groups import Ranks


class GradientBuffer:
    """Gradients of the dense parameters, P elements in all, and behind them room for more sums of P.

    Every parameter's `.grad` is a view of it: backward adds into it, without copies.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        ranks: Ranks,
        *,
        num_extra_sums: int,
        is_in_memory: bool = False,
    ) -> None:
        """parameters: of one number format, which the sums have too. num_extra: sums of P beside the gradient.
        is_in_memory: all ranks share one. Collective.
        """
        self.sizes = [parameter.numel() for parameter in parameters]
        self._shapes = [parameter.shape for parameter in parameters]
        num_elements = sum(self.sizes)
        dtype = parameters[0].dtype
        self._all_reducer = make_all_reducer(
            ranks, (1 + num_extra_sums) * num_elements, dtype, is_in_memory=is_in_memory
        )
        self.gradient, *self.extra_sums = self._all_reducer.buffer.split(num_elements)
        """Each [P]."""
        for parameter, gradient in zip(parameters, self.unflatten(self.gradient), strict=True):
            parameter.grad = gradient

    def unflatten(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """[P] as views of the parameters' shapes, in their order."""
        return [part.view(shape) for part, shape in zip(flat.split(self.sizes), self._shapes, strict=True)]

    def zero(self) -> None:
        self._all_reducer.buffer.zero_()

    def total(self) -> torch.Tensor:
        """Sum of all that is here: not finite where any of it is not."""
        return self._all_reducer.buffer.sum()

    def start_all_reduce(self, *, with_extra_sums: bool) -> AllReduceWork:
        """Begin to sum over all ranks, once all have agreed; `wait()` on the result before reading."""
        num_elements = len(self._all_reducer.buffer) if with_extra_sums else len(self.gradient)
        return self._all_reducer.start(num_elements)
