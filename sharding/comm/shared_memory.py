"""Memory that all ranks of one machine map."""

import mmap
import os
import socket
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import torch
import torch.distributed as dist

from sharding.comm.collectives import all_gather_object, run_on_all_ranks

CACHE_LINE_BYTES = 64
"""Bytes that a core takes from memory at once; two cores that write one line slow each other down."""


@dataclass(frozen=True)
class SharedBufferHandle:
    """The address by which another process opens a buffer."""

    process: int
    descriptor: int

    @property
    def path(self) -> Path:
        return Path(f"/proc/{self.process}/fd/{self.descriptor}")


class SharedBuffer:
    """Bytes of memory without a name or a file: they are freed when the last process that maps them has ended."""

    def __init__(self, descriptor: int) -> None:
        """Map an open memory file. descriptor: closed when the buffer is garbage-collected."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._map = _map_file(descriptor)

    @classmethod
    def create(cls, num_bytes: int) -> Self:
        """Make a buffer of zeros, whose pages are allocated when they are first touched."""
        descriptor = os.memfd_create("dlrm")
        os.ftruncate(descriptor, max(num_bytes, mmap.PAGESIZE))
        return cls(descriptor)

    @classmethod
    def open(cls, handle: SharedBufferHandle) -> Self:
        """Open another process's buffer. Raises OSError if it is of another machine or user."""
        return cls(os.open(handle.path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def handle(self) -> SharedBufferHandle:
        return SharedBufferHandle(os.getpid(), self._descriptor)

    def map_at_least(self, num_bytes: int, *, is_owner: bool = False) -> None:
        """Map at least `num_bytes`. The owner makes the buffer that large; others map what it has grown to.

        Tensors that were made before stay valid.
        """
        if num_bytes <= len(self._map):
            return
        if is_owner:
            os.ftruncate(self._descriptor, max(num_bytes, 2 * len(self._map)))
        self._map = _map_file(self._descriptor)

    def view_tensor(self, dtype: torch.dtype, shape: tuple[int, ...], first_byte: int = 0) -> torch.Tensor:
        """View the bytes from `first_byte` on as a tensor, which keeps their memory alive."""
        num_elements = 1
        for size in shape:
            num_elements *= size
        if not num_elements:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=num_elements, offset=first_byte).view(shape)


Buffer = TypeVar("Buffer", bound=SharedBuffer)


def share_buffers(group: dist.ProcessGroup, create: Callable[[], Buffer]) -> list[Buffer]:
    """Make a buffer on every rank, and open all of them: one per rank, by rank. Collective.

    create: makes this rank's buffer. Raises OSError on every rank, if it cannot be made on one, or if ranks are not on
    one machine; see `can_share_memory`.
    """
    made: list[Buffer] = []

    def make() -> SharedBufferHandle:
        made.append(create())
        return made[0].handle

    handles = run_on_all_ranks(group, make, OSError)
    own = made[0]
    buffers = [own if handle == own.handle else type(own).open(handle) for handle in handles]
    # A buffer must stay open until all ranks have opened it.
    dist.barrier(group)
    return buffers


def can_share_memory(group: dist.ProcessGroup) -> bool:
    """Whether every rank can map every other rank's memory. Collective; the same answer on all ranks."""
    token = SharedBuffer.create(mmap.PAGESIZE)
    own = token.view_tensor(torch.int64, (1,))
    own[0] = int.from_bytes(os.urandom(7), "little")
    gathered = all_gather_object(group, (socket.gethostname(), token.handle, own.item()))
    can_reach = all(host == socket.gethostname() and _can_read(handle, number) for host, handle, number in gathered)
    return all(all_gather_object(group, can_reach))


def _can_read(handle: SharedBufferHandle, number: int | float) -> bool:
    try:
        return SharedBuffer.open(handle).view_tensor(torch.int64, (1,)).item() == number
    except (OSError, ValueError):
        return False


def round_up_to_cache_line(num_bytes: int) -> int:
    """Round `num_bytes` up to whole cache lines, so that the next tensor begins a new line."""
    return -(-num_bytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _map_file(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)
