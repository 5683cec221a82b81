"""Embedding tables spread over ranks: pooled lookup, and one fused update for the global batch."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.initial_weights import fill_uniform
from sharding.embedding.jagged import JaggedIds
from sharding.embedding.make_transport import make_transport, uses_shared_memory
from sharding.embedding.pooled import ChunkBuffer, PooledBatch
from sharding.embedding.replicated_transport import ReplicatedTransport
from sharding.embedding.shard import Shard
from sharding.embedding.state_dict import TableState, table_state
from sharding.embedding.transport import FusedUpdateParams, InputDistHandle, Transport
from sharding.planner import Plan


@dataclass(frozen=True)
class BatchInputDist:
    """Ids of a batch, on their way to the rows."""

    bags: JaggedIds
    handles: list[InputDistHandle]

    def wait(self) -> None:
        """Until nothing is on its way any more."""
        for sent in self.handles:
            sent.wait()


class ShardedTables:
    """Tables on all ranks, one feature a table. All ranks make the same calls in the same order.

    There may be none: then nothing is exchanged, updated or kept.
    """

    def __init__(
        self,
        plan: Plan,
        optimizer: TableOptimizer,
        ranks: Ranks,
        *,
        exchange_dtype: Literal["fp32", "fp16"],
        seed: int,
        chunk_size: int,
        pooling: Literal["sum", "mean"] = "sum",
        transport: Literal["auto", "memory", "network"] = "auto",
    ) -> None:
        """chunk_size: c at most, samples whose pooled embeddings are asked for at a time. pooling: of the embeddings of
        a bag; means are taken on the rank of the sample, where the lengths are: they depend on neither plan nor kernel.

        Raises TransportError.
        """
        self._plan, self._optimizer, self._ranks, self._pooling = plan, optimizer, ranks, pooling
        self._dtype = torch.float16 if exchange_dtype == "fp16" else torch.float32
        self.is_in_memory = uses_shared_memory(transport, ranks)
        """Whether ranks reach each other by memory that all share, tables or none."""
        self._transports: list[Transport] = []
        if any(not planned.is_replicated for planned in plan.tables):
            self._transports.append(
                make_transport(plan, optimizer, ranks, self._dtype, chunk_size, is_in_memory=self.is_in_memory)
            )
        if any(planned.is_replicated for planned in plan.tables):
            self._transports.append(ReplicatedTransport(plan, optimizer, ranks))
        dim = plan.tables[0].table.embedding_dim if plan.tables else 0
        self._chunks = ChunkBuffer(len(plan.tables), dim, ranks.device)
        self._initialise(seed)

    def start_input_dist(self, ids: torch.Tensor, lengths: torch.Tensor) -> BatchInputDist:
        """Bring the ids of this rank's share of a batch on their way; goes on behind the caller.

        ids: [sum of lengths] int64, feature by feature, row by row. lengths: [F * b] int32, ids of each bag, in the
        same order; 0 is an empty bag, whose pooled embedding is zero.
        """
        bags = JaggedIds(ids, lengths, len(self._plan.tables))
        return BatchInputDist(bags, [transport.start_input_dist(bags) for transport in self._transports])

    def lookup(self, sent: BatchInputDist, num_rows: int, learning_rate: float = 0.0) -> PooledBatch:
        """Look up the pooled embeddings of the share that was sent.

        num_rows: what the sum of the samples' gradients is to be divided by, the rows of a full global batch.
        learning_rate: of the update to come, for the true gradient. Under `torch.no_grad` nothing is kept for one.
        """
        # Batches of few rows, in an epoch shorter than a batch: S / rows times their gradients would not fit fp16. They
        # travel at a scale of their own, a power of two like S, so that nothing is rounded.
        scale = min(self._optimizer.gradient_scale, float(2 ** round(math.log2(num_rows))))
        terms = FusedUpdateParams(
            learning_rate=self._optimizer.scaled_learning_rate(learning_rate),
            gradient_multiplier=self._optimizer.gradient_scale / scale,
        )
        shares = [
            transport.lookup(of_transport, terms)
            for transport, of_transport in zip(self._transports, sent.handles, strict=True)
        ]
        lengths = sent.bags.lengths
        has_means = self._pooling == "mean" and not bool((lengths == 1).all())
        of_bags = lengths.view(sent.bags.num_features, -1) if has_means else None
        return PooledBatch(shares, scale, self._dtype, self._chunks, of_bags)

    def state(self) -> TableState:
        """Weights and optimizer state as torch.distributed.checkpoint saves and loads them, in place."""
        return table_state(self._plan, self.shards(), self._optimizer, self._ranks.table_group)

    def shards(self) -> list[Shard]:
        """This rank's pieces of tables, not copied."""
        return [shard for transport in self._transports for shard in transport.shards]

    def _initialise(self, seed: int) -> None:
        """U(-1/sqrt(rows), 1/sqrt(rows)), as DLRM's reference implementation draws tables."""
        for shard in self.shards():
            table, block = shard.spec.table, shard.spec.block
            with torch.no_grad():
                fill_uniform(
                    shard.weights,
                    table_name=table.name,
                    seed=seed,
                    row_offset=block.first_row,
                    column_offset=block.first_column,
                    num_columns=table.embedding_dim,
                    bound=1 / math.sqrt(table.num_rows),
                )
        # Others may look at them at once.
        dist.barrier(self._ranks.table_group)
