"""The ranks of one run: which one this process is, and its process groups."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from sharding.comm.exchange_clock import ExchangeClock

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Longest wait of a collective for another rank. Loading of data differs between ranks by minutes at most."""


@dataclass(frozen=True)
class Ranks:
    """Number of this rank and its process groups."""

    rank: int
    world_size: int
    device: torch.device
    table_group: dist.ProcessGroup
    """Process group of pooled embeddings and their gradients."""
    ids_group: dist.ProcessGroup
    """Process group of the next batch's ids: over gloo a thread of their own uses it while this batch trains."""
    dense_group: dist.ProcessGroup
    """Process group of the dense gradients' sums and of votes, apart from the tables' so that both travel at once."""
    background_group: dist.ProcessGroup
    """Process group over gloo for all that is not a step: a thread of its own writes checkpoints over it."""
    exchange_clock: ExchangeClock = field(default_factory=ExchangeClock)
    """Clock of what this rank exchanges with others in a step; a profile starts it."""


@contextmanager
def join_process_groups(*, use_cuda: bool = False) -> Iterator[Ranks]:
    """Join the process group that torch elastic describes in the environment; leave it after a good end.

    After an error the group is left to the end of the process: NCCL waits for the other ranks before it lets go.
    use_cuda: whether this rank has a GPU, number `LOCAL_RANK` of those it may see; then over NCCL, else over gloo.
    """
    if use_cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl" if use_cuda else "gloo", timeout=COLLECTIVE_TIMEOUT)
    yield make_ranks(device)
    dist.destroy_process_group()


def make_ranks(device: torch.device) -> Ranks:
    """Make the process groups of an initialised default group. Collective: every rank calls it."""
    table_group = dist.group.WORLD
    assert table_group is not None, "the default process group is initialised"
    return Ranks(
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        device=device,
        table_group=table_group,
        ids_group=_new_group(),
        dense_group=_new_group(),
        background_group=_new_group("gloo"),
    )


def _new_group(backend: str | None = None) -> dist.ProcessGroup:
    """Make a group of all ranks. backend: by default the backend of the default group."""
    group = dist.new_group(backend=backend, timeout=COLLECTIVE_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup), "every rank is a member"
    return group


def is_lost_peer(error: Exception) -> bool:
    """Whether a collective failed because another rank is gone, and not by a fault of its own."""
    # gloo's errors are plain RuntimeErrors that name its source files.
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
