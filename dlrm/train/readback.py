"""Numbers on their way from the device to the host, which goes on meanwhile."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")


class Readback(Generic[Result]):
    """The result of numbers that a device computes. On a CPU they are there at once."""

    def __init__(self, numbers: torch.Tensor, interpret: Callable[[torch.Tensor], Result]) -> None:
        """Start to copy `numbers` to the host; from its tensor `interpret` makes the result, when it is read."""
        self._interpret = interpret
        self._on_host = numbers
        self._arrival: torch.cuda.Event | None = None
        if numbers.device.type == "cuda":
            # Only a copy to pinned memory does not hold up the host.
            self._on_host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._on_host.copy_(numbers, non_blocking=True)
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(numbers.device))

    @property
    def is_immediate(self) -> bool:
        """Whether `read` never waits."""
        return self._arrival is None

    def read(self) -> Result:
        """Return the result, after waiting for the numbers."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._interpret(self._on_host)
