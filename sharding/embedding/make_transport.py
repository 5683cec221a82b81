"""The choice of the transport of a run's sharded tables."""

import importlib.util
from typing import Literal, get_args

import torch

from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import can_share_memory
from sharding.embedding import native_ops
from sharding.embedding.count_rule import COUNTING_FIELDS
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.mapped_shards import MappedFiles
from sharding.embedding.transport import Transport
from sharding.planner import Plan

TransportName = Literal["memory", "network", "torchrec"]
TransportChoice = Literal["auto", TransportName]
"""The transport that a job asks for; "auto" leaves the choice to what works."""
TORCHREC_PACKAGES = ("torchrec", "fbgemm_gpu")


class TransportError(RuntimeError):
    """The transport that is asked for does not work here; the message names it and says why."""


def choose_transport(
    choice: TransportChoice, ranks: Ranks, dtype: torch.dtype, *, needs_counts: bool = False
) -> TransportName:
    """Choose the transport of sharded tables. Collective; the same answer on all ranks.

    choice: "auto" is the first of memory, network and TorchRec's that works here. dtype: number format in which pooled
    embeddings and gradients travel between ranks. needs_counts: see `CountRule.needs_counts`. Raises
    TransportError if none works, or not the one asked for.
    """
    names = get_args(TransportName) if choice == "auto" else (choice,)
    obstacles: list[str] = []
    for name in names:
        obstacle = _find_obstacle(name, ranks, dtype, needs_counts=needs_counts)
        if obstacle is None:
            return name
        obstacles.append(f'"{name}" {obstacle}')
    raise TransportError("; ".join(obstacles))


def make_transport(
    plan: Plan,
    optimizer: TableOptimizer,
    ranks: Ranks,
    dtype: torch.dtype,
    chunk_size: int,
    name: TransportName,
    mapped: MappedFiles | None = None,
) -> Transport:
    """Make the transport of sharded tables. Collective. Raises MappedFilesError.

    dtype: number format in which pooled embeddings and gradients travel between ranks. chunk_size: c, the most samples
    that are read at a time. name: what `choose_transport` has chosen. mapped: files for the tables, for
    "memory" alone.
    """
    match name:
        case "memory":
            from sharding.embedding.memory_transport import MemoryTransport

            return MemoryTransport(plan, optimizer, ranks, dtype, mapped)
        case "network":
            from sharding.embedding.network_transport import NetworkTransport

            return NetworkTransport(plan, optimizer, ranks, dtype, chunk_size)
        case "torchrec":
            # Imported late: TorchRec takes seconds to load.
            from sharding.embedding.torchrec_transport import TorchRecTransport

            return TorchRecTransport(plan, optimizer, ranks, dtype)


def _find_obstacle(name: TransportName, ranks: Ranks, dtype: torch.dtype, *, needs_counts: bool) -> str | None:
    """Say why a transport does not work here, as a verb phrase about it; None if it works."""
    if name == "torchrec":
        # Every rank has the packages of the same machine image; a rank without them fails by itself.
        missing = [package for package in TORCHREC_PACKAGES if importlib.util.find_spec(package) is None]
        if missing:
            return f"needs the package {missing[0]}"
        if needs_counts:
            return f"does not count how often a row occurs, which {COUNTING_FIELDS} need"
        if dtype == torch.bfloat16 and ranks.device.type == "cpu":
            # Its codec would silently send fp16.
            return 'has no bf16 exchange between CPUs; sharding.exchange_dtype = "fp16" works'
        return None
    if ranks.device.type != "cpu":
        return "is for ranks on CPUs, and these ranks have GPUs"
    if not all(all_gather_object(ranks.background_group, native_ops.is_built())):
        return f"needs the native operators: {native_ops.explain_missing()}"
    if name == "memory" and not can_share_memory(ranks.background_group):
        return "needs all ranks on one machine"
    return None
