"""Run directories of several nodes: one that all ranks share, or one for the ranks of each node."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from dlrm.record import CheckpointManifest, RunDirectory, RunStoreRecord
from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks

T = TypeVar("T")

CHUNK_BYTES = 8 * 2**20
"""Bytes of a file that travel at once between two ranks."""


@dataclass(frozen=True)
class DirectoryRanks:
    """The ranks that work in the same run directory as this one."""

    first: int
    """The first of them, which creates and removes what is there once."""
    index: int
    """Place of this rank among them."""
    count: int
    """Number of them."""

    @classmethod
    def of_all(cls, rank: int, world_size: int) -> "DirectoryRanks":
        """Return the ranks of a run whose ranks all work in one directory."""
        return cls(0, rank, world_size)

    @classmethod
    def find(cls, directory: RunDirectory, ranks: Ranks) -> "DirectoryRanks":
        """Find out from the run directory and the environment of this rank which ranks share the directory."""
        record = RunStoreRecord.read(directory.run_store)
        if record is None or record.node is None:
            return cls.of_all(ranks.rank, ranks.world_size)
        index = int(os.environ["LOCAL_RANK"])
        return cls(ranks.rank - index, index, int(os.environ["LOCAL_WORLD_SIZE"]))

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def select(self, by_rank: Sequence[T]) -> Sequence[T]:
        """Return what belongs to these ranks of a value for every rank."""
        return by_rank[self.first : self.first + self.count]

    def share(self, names: list[str]) -> list[str]:
        """Return the files of this rank among `names`, so that these ranks together have all of them."""
        return names[self.index :: self.count]


def bring_to_rank0(path: Path, manifest: CheckpointManifest, sharers: DirectoryRanks, ranks: Ranks) -> None:
    """Copy the files of a checkpoint that are not in rank 0's run directory there, from where they are. Collective.

    A file that is nowhere stays missing. Raises OSError, on all ranks, if a file cannot be read or written.
    """
    if sharers.count == ranks.world_size:
        return
    here = {name for name in manifest.files if (path / name).exists()} if sharers.is_first else set[str]()
    holders = all_gather_object(ranks.background_group, here)
    faults: list[str] = []
    for name in sorted(manifest.files):
        holder = next((rank for rank, names in enumerate(holders) if name in names), None)
        if name in holders[0] or holder is None:
            continue
        num_bytes = manifest.files[name].num_bytes
        if ranks.rank == holder:
            faults += _send(path / name, num_bytes, ranks.background_group)
        elif ranks.rank == 0:
            faults += _receive(path / name, num_bytes, holder, ranks.background_group)
    # Told at the end: both ends of a file go on to its last byte, and the other ranks are here already.
    told = all_gather_object(ranks.background_group, faults)
    if found := [fault for faults in told for fault in faults]:
        raise OSError(found[0])


def _send(path: Path, num_bytes: int, group: dist.ProcessGroup) -> list[str]:
    """Send a file to rank 0, to its end also if it cannot be read. Return the faults."""
    num_sent = 0
    try:
        with path.open("rb") as file:
            for size in _list_chunks(num_bytes):
                content = bytearray(size)
                file.readinto(content)
                dist.send(torch.frombuffer(content, dtype=torch.uint8), 0, group)
                num_sent += size
    except OSError as error:
        for size in _list_chunks(num_bytes - num_sent):
            dist.send(torch.zeros(size, dtype=torch.uint8), 0, group)
        return [f"{path}: {error.strerror or error}"]
    return []


def _receive(path: Path, num_bytes: int, holder: int, group: dist.ProcessGroup) -> list[str]:
    """Receive a file, to its end also if it cannot be written. Return the faults."""
    part = path.with_name(f".{path.name}.part")
    num_received = 0

    def receive(size: int) -> bytes:
        nonlocal num_received
        content = torch.empty(size, dtype=torch.uint8)
        dist.recv(content, holder, group)
        num_received += size
        return content.numpy().tobytes()

    try:
        with part.open("wb") as file:
            for size in _list_chunks(num_bytes):
                file.write(receive(size))
        part.replace(path)
    except OSError as error:
        for size in _list_chunks(num_bytes - num_received):
            receive(size)
        with suppress(OSError):
            part.unlink(missing_ok=True)
        return [f"{path}: {error.strerror or error}"]
    return []


def _list_chunks(num_bytes: int) -> list[int]:
    """List the sizes of the chunks in which so many bytes travel."""
    return [min(CHUNK_BYTES, num_bytes - start) for start in range(0, num_bytes, CHUNK_BYTES)]
