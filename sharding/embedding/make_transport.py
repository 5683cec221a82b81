"""The choice of the transport of a run's sharded tables."""

from typing import Literal

import torch

from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import can_share_memory
from sharding.embedding import native_ops
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.lookup import EmbeddingLookup, NativeLookup
from sharding.embedding.transport import Transport
from sharding.planner import Plan

TransportChoice = Literal["auto", "memory", "network"]
"""The transport that a job asks for; "auto" leaves the choice to what works."""


class TransportError(RuntimeError):
    """The memory transport is required and does not work here; the message says why, as a verb phrase about it."""


def uses_shared_memory(choice: TransportChoice, ranks: Ranks) -> bool:
    """Decide whether ranks read each other's memory. Collective; the same answer on all ranks.

    choice: "auto" is memory where that works. Raises TransportError where "memory" does not work.
    """
    if choice == "network":
        return False
    why_not = _find_memory_obstacle(ranks)
    if why_not is not None and choice == "memory":
        raise TransportError(why_not)
    return why_not is None


def make_transport(
    plan: Plan, optimizer: TableOptimizer, ranks: Ranks, dtype: torch.dtype, chunk_size: int, *, is_in_memory: bool
) -> Transport:
    """Make the transport of sharded tables. Collective.

    dtype: of pooled embeddings and gradients between ranks. chunk_size: c at most. is_in_memory: what
    `uses_shared_memory` has decided.
    """
    if is_in_memory:
        from sharding.embedding.memory_transport import MemoryTransport

        return MemoryTransport(plan, optimizer, ranks, dtype)
    from sharding.embedding.network_transport import NetworkTransport

    lookup = _make_lookup(plan, optimizer, ranks, dtype)
    return NetworkTransport(plan, lookup, ranks, dtype, chunk_size)


def _is_native(ranks: Ranks) -> bool:
    return ranks.device.type == "cpu" and all(all_gather_object(ranks.background_group, native_ops.is_built()))


def _find_memory_obstacle(ranks: Ranks) -> str | None:
    """Say why ranks cannot share memory, as a verb phrase about the transport; None where they can."""
    if ranks.device.type != "cpu":
        return "is for ranks on CPUs, and these ranks have GPUs"
    if not _is_native(ranks):
        return f"needs the native operators: {native_ops.explain_missing()}"
    if not can_share_memory(ranks.background_group):
        return "needs all ranks on one machine"
    return None


def _make_lookup(plan: Plan, optimizer: TableOptimizer, ranks: Ranks, dtype: torch.dtype) -> EmbeddingLookup:
    if _is_native(ranks):
        return NativeLookup(plan, optimizer, ranks.rank, dtype)
    # Imported late: FBGEMM takes seconds to load.
    from sharding.embedding.fbgemm_lookup import FbgemmLookup

    return FbgemmLookup(plan, optimizer, ranks.rank, ranks.device, dtype)
