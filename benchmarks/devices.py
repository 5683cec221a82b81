"""The device of a measurement: whether it is there, its clock, its process groups and the peak of its memory."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
import torch.distributed as dist

from benchmarks.memory import PeakMemory, measure_peak_memory
from dlrm.config import format_count
from dlrm.train.allocator import keep_freed_memory
from sharding.comm.process_groups import Ranks, make_ranks
from sharding.planner.types import Device

DEVICES = get_args(Device)


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="cuda: one GPU for each rank, over NCCL")


def describe_missing_gpus(device: Device, num_ranks: int) -> str:
    """Say in one sentence which GPUs are missing for so many ranks; empty if none is."""
    num_found = torch.cuda.device_count() if device == "cuda" else num_ranks
    if num_found >= num_ranks:
        return ""
    needed = format_count(num_ranks, "GPU")
    return f"--device cuda needs {needed}, one for each rank, and torch {torch.__version__} finds {num_found or 'none'}"


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all that was launched, before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_peak(device: torch.device) -> PeakMemory:
    """Return the peak memory since the start: of this process, or of what torch has on its GPU."""
    if device.type == "cpu":
        return measure_peak_memory()
    return PeakMemory(torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device))


@contextmanager
def join_ranks(rank: int, world_size: int, rendezvous: str, kind: Device) -> Iterator[Ranks]:
    """Join the ranks of a measurement, and leave them at the end of the block. Collective."""
    keep_freed_memory()
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world_size))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    where = {"init_method": rendezvous, "rank": rank, "world_size": world_size}
    if kind == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        # TorchRec asks how many ranks a machine has.
        os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
        dist.init_process_group("nccl", device_id=device, **where)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", **where)
    yield make_ranks(device)
    dist.destroy_process_group()
