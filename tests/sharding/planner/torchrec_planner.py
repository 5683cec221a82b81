"""TorchRec's planner on our requests, and its estimate of any plan."""

import copy
from typing import Any

import torch
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner import Topology as TheirTopology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator
from torchrec.distributed.planner.types import Shard, ShardingOption
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from sharding.planner import Block, Plan, PlanRequest, TablePlan
from sharding.planner.types import COLUMN_TYPES, SHARDING_TYPES

FUSED, DENSE = EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.DENSE.value


class TorchRecPlanner:
    """Of one request: the same machine, tables and types."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        topology = request.topology
        self._topology = TheirTopology(
            world_size=topology.world_size,
            compute_device="cuda",
            hbm_cap=topology.memory_bytes,
            local_world_size=topology.ranks_per_node,
            # A millisecond.
            hbm_mem_bw=topology.memory_bandwidth / 1000,
            intra_host_bw=topology.intra_node_bandwidth / 1000,
            inter_host_bw=topology.inter_node_bandwidth / 1000,
        )
        types = [kind for kind in SHARDING_TYPES if request.optimizer == "sgd" or kind not in COLUMN_TYPES]
        self._constraints = {
            table.name: ParameterConstraints(
                sharding_types=types, compute_kernels=[FUSED, DENSE], pooling_factors=[table.ids_per_sample]
            )
            for table in request.tables
        }
        self._batch = int(request.share_size)
        self._tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=table.name,
                    feature_names=[table.name],
                    num_embeddings=table.num_rows,
                    embedding_dim=table.embedding_dim,
                )
                for table in request.tables
            ],
            device=torch.device("meta"),
        )
        self._sharders: list[Any] = [EmbeddingBagCollectionSharder()]

    def make_plan(self) -> Plan:
        planner = EmbeddingShardingPlanner(
            topology=self._topology, batch_size=self._batch, constraints=self._constraints
        )
        (found,) = planner.plan(self._tables, self._sharders).plan.values()
        return Plan(
            self._request.topology.world_size,
            tuple(
                self._make_table_plan(number, found[table.name]) for number, table in enumerate(self._request.tables)
            ),
        )

    def _make_table_plan(self, number: int, sharding: Any) -> TablePlan:
        table, world_size = self._request.tables[number], self._request.topology.world_size
        if sharding.sharding_type == "data_parallel":
            whole = (0, table.num_rows, 0, table.embedding_dim)
            return TablePlan(table, "data_parallel", tuple(Block(rank, *whole) for rank in range(world_size)))
        blocks = tuple(
            Block(
                shard.placement.rank(),
                shard.shard_offsets[0],
                shard.shard_sizes[0],
                shard.shard_offsets[1],
                shard.shard_sizes[1],
            )
            for shard in sharding.sharding_spec.shards
            if shard.shard_sizes[0]
        )
        return TablePlan(table, sharding.sharding_type, blocks)

    def estimate_seconds(self, plan: Plan) -> float:
        """What TorchRec estimates for the tables of the slowest rank."""
        enumerator = EmbeddingEnumerator(self._topology, self._batch, self._constraints)
        options = enumerator.enumerate(self._tables, self._sharders)
        estimator = EmbeddingPerfEstimator(self._topology, self._constraints)
        sharders = build_sharder_data_map({sharder_name(EmbeddingBagCollection): self._sharders[0]})
        loads = [0.0] * plan.world_size
        for table in plan.tables:
            option = copy.deepcopy(self._find_option(options, table))
            option.shards = [
                Shard(
                    size=[block.num_rows, block.num_columns],
                    offset=[block.first_row, block.first_column],
                    rank=block.rank,
                )
                for block in table.blocks
            ]
            estimator.estimate([option], sharders)
            for shard in option.shards:
                assert shard.perf is not None
                assert shard.rank is not None
                loads[shard.rank] += shard.perf.total
        return max(loads)

    def _find_option(self, options: list[ShardingOption], table: TablePlan) -> ShardingOption:
        kernel = DENSE if table.is_replicated else FUSED
        return next(
            option
            for option in options
            if (option.name, option.sharding_type, option.compute_kernel)
            == (table.table.name, table.sharding_type, kernel)
        )
