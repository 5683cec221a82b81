"""Gradients of the dense parameters in one flat buffer, summed over ranks in one all-reduce."""

from collections.abc import Iterable

import torch
import torch.distributed as dist

from sharding.ranks import Ranks


class FlatGradients:
    """One fp32 buffer [P], P dense parameters, which every `.grad` is a view of: backward adds into it, no copies."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], ranks: Ranks) -> None:
        parameters = list(parameters)
        self._group = ranks.dense_group
        num_elements = sum(parameter.numel() for parameter in parameters)
        self.buffer = torch.zeros(num_elements, dtype=torch.float32, device=ranks.device)
        offset = 0
        for parameter in parameters:
            parameter.grad = self.buffer[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    def zero(self) -> None:
        self.buffer.zero_()

    def start_sum(self) -> dist.Work:
        """Begin to sum the buffer over all ranks; `wait()` on the result before reading it."""
        work = dist.all_reduce(self.buffer, group=self._group, async_op=True)
        assert work is not None, "an asynchronous collective returns its work"
        return work
