"""The choice of the transport of a run's sharded tables."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import can_share_memory
from sharding.embedding import native_ops
from sharding.embedding.background_thread import BackgroundThread
from sharding.embedding.count_rule import COUNTING_FIELDS
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.mapped_shards import MappedFiles
from sharding.embedding.replicated_transport import ReplicatedTransport
from sharding.embedding.sequence_transport import PartTransport, Reader, SequenceTransport
from sharding.embedding.transport import Transport
from sharding.jagged import SequenceShape
from sharding.planner import Plan

TransportName = Literal["memory", "network", "torchrec"]
TransportChoice = Literal["auto", TransportName]
"""The transport that a job asks for; "auto" leaves the choice to what works."""
TORCHREC_PACKAGES = ("torchrec", "fbgemm_gpu")
ONE_SLICE = 2**62
"""Chunk size for which a share is exchanged as one slice, as sequences need."""


class TransportError(RuntimeError):
    """The transport that is asked for does not work here; the message names it and says why."""


def choose_transport(
    choice: TransportChoice, ranks: Ranks, dtype: torch.dtype, *, needs_counts: bool = False, has_int8: bool = False
) -> TransportName:
    """Choose the transport of sharded tables. Collective; the same answer on all ranks.

    choice: "auto" is the first of memory, network and TorchRec's that works here. dtype: number format in which pooled
    embeddings and gradients travel between ranks. needs_counts: see `CountRule.needs_counts`. has_int8:
    whether some table has rows of int8. Raises TransportError if none works, or not the one asked for.
    """
    names = get_args(TransportName) if choice == "auto" else (choice,)
    obstacles: list[str] = []
    for name in names:
        obstacle = _find_obstacle(name, ranks, dtype, needs_counts=needs_counts, has_int8=has_int8)
        if obstacle is None:
            return name
        obstacles.append(f'"{name}" {obstacle}')
    raise TransportError("; ".join(obstacles))


@dataclass(frozen=True)
class TransportMaker:
    """Makes the transports of tables."""

    optimizer: TableOptimizer
    ranks: Ranks
    dtype: torch.dtype
    """Number format in which pooled embeddings and gradients travel between ranks."""
    name: TransportName
    """Transport of sharded tables that `choose_transport` has chosen."""
    mapped: MappedFiles | None = None
    """Files for the sharded tables, for "memory" alone; None if all are in memory."""
    id_thread: BackgroundThread = field(default_factory=lambda: BackgroundThread("ids of the next batch"))
    """Thread that sends the ids of all tables over the network."""

    def make(self, plan: Plan, chunk_size: int) -> list[Transport]:
        """Make the transports of a plan: of its sharded tables, and of its replicated ones. Collective.

        chunk_size: c, the most samples that are read at a time.
        """
        transports: list[Transport] = []
        if any(not planned.is_replicated for planned in plan.tables):
            transports.append(self._make_sharded(plan, chunk_size))
        if any(planned.is_replicated for planned in plan.tables):
            transports.append(ReplicatedTransport(plan, self.optimizer, self.ranks))
        return transports

    def make_with_sequences(self, plan: Plan, chunk_size: int, shapes: Sequence[SequenceShape]) -> list[Transport]:
        """Make the transports of a plan if sequences read some of its tables: each of these has its own. Collective."""
        by_target: dict[int, list[Reader]] = {}
        num_tables = num_columns = len(plan.tables)
        for number, shape in enumerate(shapes):
            readers = by_target.setdefault(shape.target, [Reader(shape.target, shape.target, 1)])
            readers.append(Reader(num_tables + number, num_columns, shape.max_length))
            num_columns += shape.max_length
        transports: list[Transport] = []
        for is_replicated in (False, True):
            others = [
                table
                for table, planned in enumerate(plan.tables)
                if table not in by_target and planned.is_replicated == is_replicated
            ]
            part = _select_tables(plan, others)
            beneath = self.make(part, chunk_size)
            transports += [PartTransport(transport, others, part.embedding_dim) for transport in beneath]
        for table, readers in by_target.items():
            part = _select_tables(plan, [table])
            (beneath,) = self.make(part, ONE_SLICE)
            transports.append(SequenceTransport(beneath, table, part.embedding_dim, readers, num_columns, self.ranks))
        return transports

    def _make_sharded(self, plan: Plan, chunk_size: int) -> Transport:
        match self.name:
            case "memory":
                from sharding.embedding.memory_transport import MemoryTransport

                return MemoryTransport(plan, self.optimizer, self.ranks, self.dtype, self.mapped)
            case "network":
                from sharding.embedding.network_transport import NetworkTransport

                return NetworkTransport(plan, self.optimizer, self.ranks, self.dtype, chunk_size, self.id_thread)
            case "torchrec":
                # Imported late: TorchRec takes seconds to load.
                from sharding.embedding.torchrec_transport import TorchRecTransport

                return TorchRecTransport(plan, self.optimizer, self.ranks, self.dtype)


def _select_tables(plan: Plan, tables: Sequence[int]) -> Plan:
    return Plan(plan.world_size, tuple(plan.tables[table] for table in tables))


def _find_obstacle(
    name: TransportName, ranks: Ranks, dtype: torch.dtype, *, needs_counts: bool, has_int8: bool
) -> str | None:
    """Say why a transport does not work here, as a verb phrase about it; None if it works."""
    if name == "torchrec":
        # Every rank has the packages of the same machine image; a rank without them fails by itself.
        missing = [package for package in TORCHREC_PACKAGES if importlib.util.find_spec(package) is None]
        if missing:
            return f"needs the package {missing[0]}"
        if needs_counts:
            return f"does not count how often a row occurs, which {COUNTING_FIELDS} need"
        if has_int8:
            return "keeps tables in fp32 alone"
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
