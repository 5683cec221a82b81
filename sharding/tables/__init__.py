"""Embedding tables spread over ranks, and the ways between ranks and rows."""

from sharding.tables.choose import TransportError
from sharding.tables.optimizer import TableOptimizer
from sharding.tables.pooled import PooledBatch
from sharding.tables.shard import Place, Shard
from sharding.tables.sharded import SentBatch, ShardedTables

__all__ = ["Place", "PooledBatch", "SentBatch", "Shard", "ShardedTables", "TableOptimizer", "TransportError"]
