"""Memory of the tensors of this process."""

import gc
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

MAX_TRIES = 4


def list_live_tensors() -> list[torch.Tensor]:
    """List every tensor of this process that is not frozen, and has memory of its own."""
    with warnings.catch_warnings(action="ignore"):
        tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
        return [tensor for tensor in tensors if not isinstance(tensor, ShardedTensor)]


def storage_bytes(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return the bytes of the tensors' storages by address; tensors that share one count once."""
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}


class PeakMemory:
    """The most bytes that new tensors had at any call of `measure`."""

    def __init__(self) -> None:
        gc.collect()
        # Kept, so that no new tensor gets the address of an old one.
        self._old_tensors = list_live_tensors()
        self._old_storages = storage_bytes(self._old_tensors)
        # Old objects need not be looked through again.
        gc.freeze()
        self._arguments: list[weakref.ref[torch.Tensor]] = []
        self.num_bytes = 0

    def measure(self) -> None:
        # The least of a few: the threads of gloo release the arguments of a collective some time after it is done.
        counted = [self._count_bytes()]
        while counted[-1] > self.num_bytes and len(counted) < MAX_TRIES:
            time.sleep(0.005)
            counted.append(self._count_bytes())
        self.num_bytes = max(self.num_bytes, min(counted))

    def _count_bytes(self) -> int:
        now = storage_bytes(list_live_tensors())
        return sum(size for address, size in now.items() if address not in self._old_storages)

    def measure_before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with a measurement before each call."""

        def measure_and_call(*arguments: Any, **named: Any) -> Any:
            self.measure()
            self._arguments += [weakref.ref(argument) for argument in arguments if isinstance(argument, torch.Tensor)]
            return function(*arguments, **named)

        return measure_and_call

    def wait_for_release(self) -> None:
        """Wait until the threads of gloo have released their arguments, which is some time after they are done."""
        deadline = time.monotonic() + 10
        while any(argument() is not None for argument in self._arguments) and time.monotonic() < deadline:
            time.sleep(0.001)
        self._arguments.clear()
