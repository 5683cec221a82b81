"""Sums over the samples of a batch in one flat buffer, added up over ranks in one all-reduce."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from sharding.ranks import Ranks


class FlatSums:
    """Gradients of the dense parameters, P elements in all, and behind them room for more sums of P.

    Every parameter's `.grad` is a view of it: backward adds into it, without copies.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], ranks: Ranks, *, num_extra: int) -> None:
        """parameters: of one number format, which the sums have too. num_extra: sums of P beside the gradient."""
        self._group = ranks.dense_group
        self.sizes = [parameter.numel() for parameter in parameters]
        self._shapes = [parameter.shape for parameter in parameters]
        num_elements = sum(self.sizes)
        dtype = parameters[0].dtype
        self._buffer = torch.zeros((1 + num_extra) * num_elements, dtype=dtype, device=ranks.device)
        self.gradient, *self.extra = self._buffer.split(num_elements)
        """Each [P]."""
        for parameter, gradient in zip(parameters, self.shaped(self.gradient), strict=True):
            parameter.grad = gradient

    def shaped(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """[P] as views of the parameters' shapes, in their order."""
        return [part.view(shape) for part, shape in zip(flat.split(self.sizes), self._shapes, strict=True)]

    def zero(self) -> None:
        self._buffer.zero_()

    def total(self) -> torch.Tensor:
        """Sum of all that is here: not finite where any of it is not."""
        return self._buffer.sum()

    def start(self, *, with_extra: bool) -> dist.Work:
        """Begin to sum over all ranks; `wait()` on the result before reading."""
        work = dist.all_reduce(self._buffer if with_extra else self.gradient, group=self._group, async_op=True)
        assert work is not None, "an asynchronous collective returns its work"
        return work
