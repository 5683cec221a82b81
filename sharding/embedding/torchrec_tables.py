"""Sharded tables of TorchRec with our plan, our optimizers and our view of their shards.

FBGEMM's kernels update rows in the backward pass of the lookup (fused optimizers), on GPUs and on CPUs. A table may
stay in the memory of the host; a GPU then caches rows, newer than the host's until they are written back.

FBGEMM is not asked to check that ids are rows of their tables: whatever makes ids bounds them. The encoders count the
values that they know (`dlrm.data.encode`), synthetic rows draw below the number of rows, and packed files are checked
block by block when they are read (`dlrm.data.packed`): another program may have written them.
"""

from typing import Any, cast

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
from torch import nn
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbeddingBag
from torchrec.distributed.comm import get_topology_group_world_size
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, ShardedEmbeddingBagCollection
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.sharding.tw_sharding import TwSparseFeaturesDist
from torchrec.distributed.types import Awaitable, NoWait, ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import EPS, TableOptimizer
from sharding.embedding.shard import Shard, ShardSpec
from sharding.embedding.torchrec_columns import BlockColumns
from sharding.embedding.torchrec_plan import TorchRecTable, list_torchrec_tables, make_sharding_plan, name_feature
from sharding.planner import Block, Plan

OPTIMIZERS = {
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "sgd": EmbOptimType.EXACT_SGD,
}


class TorchRecTables:
    """The tables of a plan in one sharded collection of TorchRec."""

    def __init__(self, plan: Plan, optimizer: TableOptimizer, ranks: Ranks, dtype: torch.dtype) -> None:
        """Shard the tables of `plan` that are not replicated. Collective.

        dtype: number format in which pooled embeddings and gradients travel between ranks.
        """
        ranks_per_node = get_topology_group_world_size(ranks.world_size)
        self.tables = list_torchrec_tables(plan, ranks_per_node)
        self.block_dtype = _choose_block_dtype(dtype, ranks.device)
        """Number format in which FBGEMM writes pooled embeddings and takes gradients."""
        index_type = _choose_index_type(self.tables)
        unsharded = EmbeddingBagCollection([*map(_make_config, self.tables)], device=torch.device("meta"))
        sharder = EmbeddingBagCollectionSharder(
            fused_params={
                "optimizer": OPTIMIZERS[optimizer.name],
                "eps": EPS,
                "learning_rate": 0.0,
                "output_dtype": SparseType.from_dtype(self.block_dtype),
                "stochastic_rounding": False,
                "bounds_check_mode": BoundsCheckMode.NONE,
                "embedding_table_index_type": index_type,
                "embedding_table_offset_type": index_type,
            },
            qcomm_codecs_registry=None if dtype == self.block_dtype else _make_codecs(dtype, ranks.device),
        )
        sharding_plan = make_sharding_plan(self.tables, ranks.world_size, ranks_per_node, ranks.device)
        env = ShardingEnv.from_process_group(ranks.table_group)
        self.module: ShardedEmbeddingBagCollection = sharder.shard(unsharded, sharding_plan, env, ranks.device)
        self._device = ranks.device
        parts = {table.name: table.part for table in self.tables}
        self._shards = _list_shards(self.module, parts, optimizer, ranks.rank)
        self.are_whole = all(table.is_whole for table in self.tables)
        """Whether every table of TorchRec's is a whole one of ours."""
        of_ours = (name_feature(feature) for feature in range(len(plan.tables)))
        self.features = list(of_ours) if self.are_whole else [table.name for table in self.tables]
        """Names of the features that TorchRec takes: all of ours if its tables are whole, else one for each of them."""
        in_block = [parts[name] for name in self.module._embedding_names]
        self.columns = BlockColumns(in_block, plan.embedding_dim, ranks.device)
        """Columns of the block [b, C] of pooled embeddings."""
        if ranks.world_size == 1:
            self._keep_ids()

    def list_shards(self) -> list[Shard]:
        """List this rank's shards, for reading and writing until the next lookup, in the order of our tables.

        Rows that a GPU caches are written back to them first, and looked up anew afterwards.
        """
        for group in _list_groups(self.module):
            group.emb_module.flush()
            # Else the cache would hide what is written to the shards, and later write over it.
            group.emb_module.reset_cache_states()
        if self._device.type == "cuda":
            # The host reads cached tables itself.
            torch.cuda.synchronize(self._device)
        return self._shards

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next lookup's update: FBGEMM fixes it in the forward pass."""
        for group in _list_groups(self.module):
            group.emb_module.set_learning_rate(learning_rate)

    def _keep_ids(self) -> None:
        """Have the input dists of one rank return ids as they are.

        TorchRec's would make a permutation on the device, which nothing uses, and wait for the device meanwhile.
        """
        self.module._create_input_dist(self.features)
        self.module._has_uninitialized_input_dist = False
        self.module._input_dists = [
            _KeptIds() if isinstance(input_dist, TwSparseFeaturesDist) else input_dist
            for input_dist in self.module._input_dists
        ]


def _make_config(table: TorchRecTable) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=table.name,
        feature_names=[table.name],
        num_embeddings=table.part.block.num_rows,
        embedding_dim=table.part.block.num_columns,
        pooling=PoolingType.SUM,
    )


class _KeptIds(nn.Module):
    """The input dist of whole tables, or of their columns, on one rank."""

    def forward(self, ids: KeyedJaggedTensor) -> Awaitable[Awaitable[KeyedJaggedTensor]]:
        return NoWait(NoWait(ids))


def _choose_block_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Choose bf16 on GPUs if the exchange is in bf16: then no codec makes copies in another format. Else fp32."""
    return dtype if dtype == torch.bfloat16 and device.type == "cuda" else torch.float32


def _choose_index_type(tables: list[TorchRecTable]) -> torch.dtype:
    """Choose the integers of ids and offsets: int32 if they hold all rows of all shards, which FBGEMM numbers through.

    A cache of rows numbers them in its own way.
    """
    num_rows = sum(block.num_rows for table in tables for block in table.blocks)
    is_cached = any(table.part.table.is_cached for table in tables)
    return torch.int64 if is_cached or num_rows > torch.iinfo(torch.int32).max else torch.int32


def _make_codecs(dtype: torch.dtype, device: torch.device) -> dict[str, Any] | None:
    """Make the codecs of pooled embeddings and gradients on the wire.

    No loss scale of TorchRec's: it would divide in fp16, and our gradients come at `PooledBatch.scale`.
    """
    precision = CommType.BF16 if dtype == torch.bfloat16 else CommType.FP16
    config = QCommsConfig(forward_precision=precision, backward_precision=precision)
    return get_qcomm_codecs_registry(config, device=device)


def _list_groups(module: ShardedEmbeddingBagCollection) -> list[BatchedFusedEmbeddingBag]:
    """List the groups of this rank's shards that one kernel looks up and updates."""
    groups = [group for lookup in module._lookups for group in cast("nn.ModuleList", lookup._emb_modules)]
    return cast("list[BatchedFusedEmbeddingBag]", groups)


def _list_shards(
    module: ShardedEmbeddingBagCollection, parts: dict[str, ShardSpec], optimizer: TableOptimizer, rank: int
) -> list[Shard]:
    """View weights and state of this rank's shards in the order of our tables. parts: by TorchRec's names."""
    shards: list[Shard] = []
    for group in _list_groups(module):
        weights = group.split_embedding_weights()
        if optimizer.name == "sgd":
            states = [table.new_empty(0) for table in weights]
        else:
            states = [kept[0] for kept in group.emb_module.split_optimizer_states()]
        for held, of_weights, state in zip(group.config.embedding_tables, weights, states, strict=True):
            if held.local_metadata is None or not of_weights.numel():
                continue
            part, (row, column) = parts[held.name], held.local_metadata.shard_offsets
            first_row, first_column = part.block.first_row + row, part.block.first_column + column
            block = Block(rank, first_row, held.local_rows, first_column, held.local_cols)
            spec = ShardSpec(part.feature, part.table, block)
            shards.append(Shard(spec, _view_on_host(of_weights), _view_on_host(state)))
    return sorted(shards, key=lambda shard: shard.spec.sort_key)


def _view_on_host(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor that GPUs and host share as one of the host; others are returned as they are.

    A checkpoint would copy it as a whole from a device, into memory that the host may not have.
    """
    if tensor.is_cuda and torch.ops.fbgemm.is_uvm_tensor(tensor):
        return torch.ops.fbgemm.uvm_to_cpu(tensor)
    return tensor
