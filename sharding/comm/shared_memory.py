"""Memory that the ranks of one machine map."""

import mmap
import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from sharding.comm.step_vote import told_by_all

LINE_BYTES = 64


@dataclass(frozen=True)
class Handle:
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
        self._map = _mapped(descriptor)

    @classmethod
    def made(cls, num_bytes: int) -> "SharedBuffer":
        """Zeros; pages are taken as they are first touched."""
        descriptor = os.memfd_create("dlrm")
        os.ftruncate(descriptor, max(num_bytes, mmap.PAGESIZE))
        return cls(descriptor)

    @classmethod
    def opened(cls, handle: Handle) -> "SharedBuffer":
        """Raises OSError where the process is of another machine or user."""
        return cls(os.open(handle.path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def handle(self) -> Handle:
        return Handle(os.getpid(), self._descriptor)

    def reach(self, num_bytes: int, *, is_owner: bool = False) -> None:
        """Map at least so many bytes. The owner makes the buffer that large; the others find that it has grown.

        Tensors from before keep the bytes that they had.
        """
        if num_bytes <= len(self._map):
            return
        if is_owner:
            os.ftruncate(self._descriptor, max(num_bytes, 2 * len(self._map)))
        self._map = _mapped(self._descriptor)

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...], first_byte: int = 0) -> torch.Tensor:
        """A view; its memory lives as long as it."""
        num_elements = 1
        for size in shape:
            num_elements *= size
        if not num_elements:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=num_elements, offset=first_byte).view(shape)


def shared_by_all(group: dist.ProcessGroup, num_bytes: int) -> list[SharedBuffer]:
    """A buffer of every rank, by rank, on every rank. Collective. num_bytes: of this rank's own.

    Raises OSError where some rank cannot be reached so; see `is_one_machine`.
    """
    own = SharedBuffer.made(num_bytes)
    handles = told_by_all(group, own.handle)
    buffers = [own if handle == own.handle else SharedBuffer.opened(handle) for handle in handles]
    # Until all have opened it a buffer must stay.
    dist.barrier(group)
    return buffers


def is_one_machine(group: dist.ProcessGroup) -> bool:
    """Whether every rank can map every other's memory. Collective; the same answer on all."""
    token = SharedBuffer.made(mmap.PAGESIZE)
    own = token.tensor(torch.int64, (1,))
    own[0] = int.from_bytes(os.urandom(7), "little")
    told = told_by_all(group, (socket.gethostname(), token.handle, own.item()))
    reached = all(host == socket.gethostname() and _holds(handle, number) for host, handle, number in told)
    return all(told_by_all(group, reached))


def _holds(handle: Handle, number: int | float) -> bool:
    try:
        return SharedBuffer.opened(handle).tensor(torch.int64, (1,)).item() == number
    except (OSError, ValueError):
        return False


def whole_lines(num_bytes: int) -> int:
    """Rounded up to whole lines of the cache, so that what comes behind begins with one."""
    return -(-num_bytes // LINE_BYTES) * LINE_BYTES


def _mapped(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, os.fstat(descriptor).st_size)
