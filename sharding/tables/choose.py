"""Which way the tables of a run are reached."""

from typing import Literal

import torch

from sharding.agree import told_by_all
from sharding.plan import Plan
from sharding.ranks import Ranks
from sharding.shared import is_one_machine
from sharding.tables import native
from sharding.tables.optimizer import TableOptimizer
from sharding.tables.owner import NativeOwner, Owner
from sharding.tables.transport import Transport


class TransportError(RuntimeError):
    """The transport that was asked for does not work here; says why, and what would."""


def make_transport(
    asked: Literal["auto", "memory", "network"],
    plan: Plan,
    optimizer: TableOptimizer,
    ranks: Ranks,
    dtype: torch.dtype,
    chunk_size: int,
) -> Transport:
    """memory where all ranks share one, unless the network is asked for. Collective; the same on all ranks.

    dtype: of pooled embeddings and gradients between ranks. chunk_size: c at most. Raises TransportError.
    """
    is_native = ranks.device.type == "cpu" and all(told_by_all(ranks.background_group, native.is_built()))
    if asked != "network":
        why_not = _why_no_memory(ranks, is_native)
        if why_not is None:
            from sharding.tables.memory import MemoryTransport

            return MemoryTransport(plan, optimizer, ranks, dtype)
        if asked == "memory":
            raise TransportError(f'sharding.transport: "memory" {why_not} (valid: "auto", "network")')
    from sharding.tables.network import NetworkTransport

    owner = _make_owner(plan, optimizer, ranks, dtype, is_native)
    return NetworkTransport(plan, owner, ranks, dtype, chunk_size)


def _why_no_memory(ranks: Ranks, is_native: bool) -> str | None:
    if ranks.device.type != "cpu":
        return "is for ranks on CPUs, and these have GPUs"
    if not is_native:
        return f"needs the own operators: {native.why_not_built()}"
    if not is_one_machine(ranks.background_group):
        return "needs all ranks on one machine"
    return None


def _make_owner(plan: Plan, optimizer: TableOptimizer, ranks: Ranks, dtype: torch.dtype, is_native: bool) -> Owner:
    if is_native:
        return NativeOwner(plan, optimizer, ranks.rank, dtype)
    # Late: it takes seconds to load.
    from sharding.tables.fbgemm import FbgemmOwner

    return FbgemmOwner(plan, optimizer, ranks.rank, ranks.device, dtype)
