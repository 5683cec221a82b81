"""Memory that the ranks of one machine map."""

import mmap
import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from sharding.comm.step_vote import all_gather_object

CACHE_LINE_BYTES = 64


@dataclass(frozen=True)
class SharedBufferHandle:
    """What another process opens a buffer by."""

    process: int
    descriptor: int

    @property
    def path(self) -> Path:
        return Path(f"/proc/{self.process}/fd/{self.descriptor}")


class SharedBuffer:
    """Bytes in memory, with no name and no file: they are gone when the last process that maps them is."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of an open file in memory, which the buffer closes when nobody refers to it any more."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._map = _map_file(descriptor)

    @classmethod
    def create(cls, num_bytes: int) -> "SharedBuffer":
        """Zeros; pages are taken as they are first touched."""
        descriptor = os.memfd_create("dlrm")
        os.ftruncate(descriptor, max(num_bytes, mmap.PAGESIZE))
        return cls(descriptor)

    @classmethod
    def open(cls, handle: SharedBufferHandle) -> "SharedBuffer":
        """Raises OSError where the process is of another machine or user."""
        return cls(os.open(handle.path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def handle(self) -> SharedBufferHandle:
        return SharedBufferHandle(os.getpid(), self._descriptor)

    def map_at_least(self, num_bytes: int, *, is_owner: bool = False) -> None:
        """Map at least so many bytes. The owner makes the buffer that large; the others find that it has grown.

        Tensors from before keep the bytes that they had.
        """
        if num_bytes <= len(self._map):
            return
        if is_owner:
            os.ftruncate(self._descriptor, max(num_bytes, 2 * len(self._map)))
        self._map = _map_file(self._descriptor)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...], first_byte: int = 0) -> torch.Tensor:
        """A view; its memory lives as long as it."""
        num_elements = 1
        for size in shape:
            num_elements *= size
        if not num_elements:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=num_elements, offset=first_byte).view(shape)


def share_buffers(group: dist.ProcessGroup, num_bytes: int) -> list[SharedBuffer]:
    """A buffer of every rank, by rank, on every rank. Collective. num_bytes: of this rank's own.

    Raises OSError where some rank cannot be reached so; see `is_one_machine`.
    """
    own = SharedBuffer.create(num_bytes)
    handles = all_gather_object(group, own.handle)
    buffers = [own if handle == own.handle else SharedBuffer.open(handle) for handle in handles]
    # Until all have opened it a buffer must stay.
    dist.barrier(group)
    return buffers


def can_share_memory(group: dist.ProcessGroup) -> bool:
    """Whether every rank can map every other's memory. Collective; the same answer on all."""
    token = SharedBuffer.create(mmap.PAGESIZE)
    own = token.tensor(torch.int64, (1,))
    own[0] = int.from_bytes(os.urandom(7), "little")
    told = all_gather_object(group, (socket.gethostname(), token.handle, own.item()))
    reached = all(host == socket.gethostname() and _can_read(handle, number) for host, handle, number in told)
    return all(all_gather_object(group, reached))


def _can_read(handle: SharedBufferHandle, number: int | float) -> bool:
    try:
        return SharedBuffer.open(handle).tensor(torch.int64, (1,)).item() == number
    except (OSError, ValueError):
        return False


def round_up_to_cache_line(num_bytes: int) -> int:
    """Rounded up to whole lines of the cache, so that what comes behind begins with one."""
    return -(-num_bytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _map_file(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)
