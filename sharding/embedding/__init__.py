"""Embedding tables spread over ranks, and the ways between ranks and rows."""

from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.make_transport import TransportError
from sharding.embedding.pooled import PooledBatch
from sharding.embedding.shard import Shard, ShardSpec
from sharding.embedding.sharded_tables import BatchInputDist, ShardedTables

__all__ = ["BatchInputDist", "PooledBatch", "Shard", "ShardSpec", "ShardedTables", "TableOptimizer", "TransportError"]
