"""The processes of one run: who this one is, and the groups it talks in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Longest wait for another rank; loading of data differs between ranks by minutes at most."""


@dataclass(frozen=True)
class Ranks:
    """This rank and its process groups."""

    rank: int
    world_size: int
    device: torch.device
    table_group: dist.ProcessGroup
    """Pooled embeddings and their gradients."""
    ids_group: dist.ProcessGroup
    """Ids of the next batch; over gloo by a thread of their own while this one trains."""
    dense_group: dist.ProcessGroup
    """Sums of the dense gradients and agreements; apart, so that they fly beside the tables' exchange."""
    background_group: dist.ProcessGroup
    """Over gloo, of what is not a step: checkpoints are written over it by a thread of their own."""


@contextmanager
def join_process_groups() -> Iterator[Ranks]:
    """Join the process group that the elastic launch describes in the environment; leave it at a good end.

    After an error the group is left to the end of the process: NCCL waits for the other ranks before it lets go.
    CUDA over NCCL where the launch gave this rank a GPU (`LOCAL_RANK` under `CUDA_VISIBLE_DEVICES`), else gloo.
    """
    use_cuda = os.environ.get("DLRM_DEVICE", "cpu") == "cuda"
    if use_cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    dist.init_process_group("nccl" if use_cuda else "gloo", timeout=COLLECTIVE_TIMEOUT)
    yield make_ranks(device)
    dist.destroy_process_group()


def make_ranks(device: torch.device) -> Ranks:
    """The groups of an initialised default process group. Collective: every rank calls it."""
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
    """Of all ranks. backend: that of the default group, where none is named."""
    group = dist.new_group(backend=backend, timeout=COLLECTIVE_TIMEOUT)
    assert isinstance(group, dist.ProcessGroup), "every rank is a member"
    return group


def is_lost_peer(error: Exception) -> bool:
    """Whether a collective failed because another rank is gone, and not of itself."""
    # gloo's errors are plain RuntimeErrors that name its source files.
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
