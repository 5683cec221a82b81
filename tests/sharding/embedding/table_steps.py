"""Functions that ranks run: lookups and updates of sharded tables without a model, as a training step makes them."""

from dataclasses import dataclass, field
from typing import Literal
from unittest import mock

import torch

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import MappedFiles, ShardedTables, TableOptimizer
from sharding.embedding.count_rule import CountRule
from sharding.embedding.make_transport import TransportName
from sharding.jagged import SequenceShape
from sharding.planner import ExchangeType, Plan
from tests.sharding.embedding.table_batches import DIM, GLOBAL_SIZE, LEARNING_RATE, ROWS, TableBatch
from tests.sharding.embedding.transport_kinds import use_transport

CHUNK_SIZE = 5
SCALE = 32.0
SLICE_BYTES = 7 * len(ROWS) * DIM * 4
"""Bytes of 7 samples in fp32: a share has several slices, and chunks of 5 do not end where slices do."""

OptimizerName = Literal["sgd", "rowwise_adagrad", "adagrad"]
Pooling = Literal["sum", "mean"]
ShardWeights = dict[tuple[str, int, int], torch.Tensor]
"""Weights of shards by table, first row and first column."""


@dataclass(frozen=True)
class TableLayout:
    """Layout of sharded tables: their plan, and how ranks reach and update them."""

    plan: Plan
    transport: TransportName = "memory"
    optimizer: OptimizerName = "sgd"
    exchange_dtype: ExchangeType = "fp32"
    pooling: Pooling = "sum"
    count_rule: CountRule = field(default_factory=CountRule)
    initial_state: float = 0.0
    scale: float = SCALE
    mapped: MappedFiles | None = None
    sequences: tuple[SequenceShape, ...] = ()

    def make_tables(self, ranks: Ranks) -> ShardedTables:
        return ShardedTables(
            self.plan,
            TableOptimizer(self.optimizer, self.scale, GLOBAL_SIZE, self.initial_state, self.count_rule),
            ranks,
            exchange_dtype=self.exchange_dtype,
            seed=5,
            chunk_size=CHUNK_SIZE,
            pooling=self.pooling,
            transport=self.transport,
            mapped=self.mapped,
            sequences=self.sequences,
        )


@dataclass(frozen=True)
class TablesResult:
    """Weights and pooled embeddings of one rank over some batches."""

    before: ShardWeights
    after: ShardWeights
    pooled: list[torch.Tensor]
    """[b, F, D] of each batch."""
    evaluated: list[torch.Tensor]
    """Pooled embeddings like `pooled`, of lookups without an update, in between those of training."""


def copy_weights(tables: ShardedTables) -> ShardWeights:
    return {
        (shard.spec.table.name, shard.spec.block.first_row, shard.spec.block.first_column): shard.weights.clone().cpu()
        for shard in tables.list_shards()
    }


def list_chunks(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + CHUNK_SIZE, size)) for start in range(0, size, CHUNK_SIZE)]


def look_up_and_update(ranks: Ranks, layout: TableLayout, batches: list[TableBatch]) -> TablesResult:
    """Make one update per batch as a step does: read a chunk, write its gradient, and vote before the update."""
    size = GLOBAL_SIZE // ranks.world_size
    with (
        use_transport(layout.transport, ranks.world_size),
        mock.patch("sharding.planner.slice_size.SLICE_BYTES", SLICE_BYTES),
    ):
        tables = layout.make_tables(ranks)
        result = TablesResult(copy_weights(tables), {}, [], [])
        # As in training, the ids of a batch travel while the one before it is updated.
        handles = [tables.start_input_dist(batches[0].share(ranks.rank, ranks.world_size, ranks.device))]
        for number, batch in enumerate(batches):
            if number + 1 < len(batches):
                ahead = batches[number + 1].share(ranks.rank, ranks.world_size, ranks.device)
                handles.append(tables.start_input_dist(ahead))
            result.evaluated.append(look_up(tables, batch, ranks))
            pooled = tables.lookup(handles[number], batch.num_valid, LEARNING_RATE)
            gradient = batch.gradient.split(size)[ranks.rank].to(ranks.device)
            chunks: list[torch.Tensor] = []
            for start, end in list_chunks(size):
                chunks.append(pooled.read_chunk(start, end).clone().cpu())
                assert pooled.write_gradient(start, end, gradient[start:end] * pooled.scale) == 0.0
            all_reduce_votes(ranks, DEFAULT_VOTE)
            pooled.apply_update(LEARNING_RATE)
            result.pooled.append(torch.cat(chunks))
        result.after.update(copy_weights(tables))
        return result


@torch.no_grad()
def look_up(tables: ShardedTables, batch: TableBatch, ranks: Ranks) -> torch.Tensor:
    """Return the pooled embeddings [b, F, D] of this rank's share, without an update."""
    ids = batch.share(ranks.rank, ranks.world_size, ranks.device)
    pooled = tables.lookup(tables.start_input_dist(ids), batch.num_valid)
    size = GLOBAL_SIZE // ranks.world_size
    return torch.cat([pooled.read_chunk(start, end).clone().cpu() for start, end in list_chunks(size)])
