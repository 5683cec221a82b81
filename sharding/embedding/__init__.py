"""Embedding tables sharded over ranks: input dist, lookup, output dist, fused update."""

from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.make_transport import TransportError, TransportName
from sharding.embedding.mapped_shards import MappedFiles, MappedFilesError
from sharding.embedding.shard import Shard, ShardSpec
from sharding.embedding.sharded_tables import BatchInputDist, PooledBatch, ShardedTables
from sharding.embedding.state_dict import PIECE_BYTES
from sharding.embedding.table_average import TableAverage, swap_tensors
