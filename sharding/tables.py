"""Embedding tables spread over ranks: pooled lookup, and one fused update for the global batch.

TorchRec does the exchange and the kernels; the plan is ours. What is undone of it, and why, stands here alone: its
division of gradients by W, its order of features, its initial weights that depend on the split.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec.distributed import comm_ops
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, ShardedEmbeddingBagCollection
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingType
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from sharding.initialise import fill_uniform
from sharding.plan import Plan, TablePlan
from sharding.pooled_block import PooledBlock
from sharding.ranks import Ranks

OPTIMIZERS = {"rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "sgd": EmbOptimType.EXACT_SGD}
ADAGRAD_EPS = 1e-8


@dataclass(frozen=True)
class TableOptimizer:
    """The optimizer fused into the tables' backward pass."""

    name: Literal["rowwise_adagrad", "sgd"]
    gradient_scale: float
    """S, a power of two: tables are updated with S times the true gradient. Adagrad does not see S; SGD's rate is
    divided by it."""


class ShardedTables:
    """Tables on all ranks, one feature a table. Every method but `set_learning_rate` is collective.

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
        pooling: Literal["sum", "mean"] = "sum",
    ) -> None:
        """pooling: of the embeddings of a bag. Means are taken on the rank of the sample, where the lengths are: they
        depend on neither plan nor kernel."""
        self._plan = plan
        self._ranks = ranks
        self._optimizer = optimizer
        self._pooling = pooling
        self._names = [table_plan.table.name for table_plan in plan.tables]
        self._owner_factor = 1.0
        self._order: torch.Tensor | None = None
        self._is_ordered = False
        comm_ops.set_gradient_division(False)
        # TorchRec cannot shard a collection of no tables.
        self._module = _shard(plan, optimizer, ranks, exchange_dtype) if plan.tables else None
        if self._module is not None:
            for lookup in self._module._lookups:
                lookup.register_forward_hook(self._bring_to_fixed_scale)
        self._initialise(seed)

    def lookup(self, ids: torch.Tensor, lengths: torch.Tensor, num_valid: int) -> PooledBlock:
        """Pooled embeddings of this rank's share of a global batch with `num_valid` rows.

        ids: [sum of lengths] int64, feature by feature, row by row. lengths: [F * b] int32, ids of each bag, in the
        same order; 0 is an empty bag, whose pooled embedding is zero. Under `torch.no_grad` nothing is kept for an
        update.
        """
        if self._module is None:
            return PooledBlock(torch.empty(0, device=self._ranks.device), num_features=0)
        scale = min(self._optimizer.gradient_scale, float(2 ** round(math.log2(num_valid))))
        self._owner_factor = self._optimizer.gradient_scale / scale
        pooled = self._module(KeyedJaggedTensor(keys=self._names, values=ids, lengths=lengths)).wait()
        values = pooled.values()
        if not self._is_ordered:
            self._order = self._order_of(pooled.keys())
            self._is_ordered = True
        has_means = self._pooling == "mean" and not bool((lengths == 1).all())
        of_bags = lengths.view(len(self._names), -1) if has_means else None
        return PooledBlock(values, len(self._names), scale=scale, order=self._order, lengths=of_bags)

    def update(self, block: PooledBlock) -> None:
        """One update of every table for the global batch, from the gradient that was set in `block`."""
        if self._module is not None:
            block.pooled.backward(block.pooled.detach())

    def set_learning_rate(self, learning_rate: float) -> None:
        """The rate of the true gradient's step, for lookups that follow: FBGEMM notes it there, not at the update."""
        if self._module is None:
            return
        if self._optimizer.name == "sgd":
            learning_rate /= self._optimizer.gradient_scale
        for group in cast("list[dict[str, Any]]", self._module.fused_optimizer.param_groups):
            group["lr"] = learning_rate
        # FBGEMM takes over the rates of the parameter groups in `step`, which updates nothing.
        self._module.fused_optimizer.step()

    def state(self) -> dict[str, Any]:
        """Weights and optimizer state as torch.distributed.checkpoint saves and loads them, in place.

        Of the tables that this rank has a part of: torch takes a state with others in it for one of an older format.
        """
        if self._module is None:
            return {"weights": {}, "optimizer": {"state": {}}}
        weights = {
            name: table
            for name, table in self._module.state_dict().items()
            if not isinstance(table, ShardedTensor) or table.local_shards()
        }
        return {"weights": weights, "optimizer": self._module.fused_optimizer.state_dict()}

    def shards(self) -> list[tuple[str, int, int, torch.Tensor]]:
        """This rank's shards: table name, first row, first column, weights [rows, columns], not copied."""
        found: list[tuple[str, int, int, torch.Tensor]] = []
        for key, value in self._module.state_dict().items() if self._module is not None else ():
            assert isinstance(value, ShardedTensor), "every offered sharding type is kept as a ShardedTensor"
            for shard in value.local_shards():
                row, column = shard.metadata.shard_offsets
                found.append((_table_name(key), row, column, shard.tensor))
        return found

    def _bring_to_fixed_scale(self, module: torch.nn.Module, arguments: Any, pooled: torch.Tensor) -> None:  # noqa: ARG002
        """Multiply the gradient that comes back to `pooled` at its owner up to S.

        A short batch has few rows, and S / rows times their gradients would not fit fp16: they travel at a scale of
        their own, a power of two like S, so that nothing is rounded.
        """
        factor = self._owner_factor
        if factor != 1.0 and pooled.requires_grad:
            pooled.register_hook(lambda gradient: gradient * factor)

    def _initialise(self, seed: int) -> None:
        """U(-1/sqrt(rows), 1/sqrt(rows)), as DLRM's reference implementation draws tables."""
        tables = {table_plan.table.name: table_plan.table for table_plan in self._plan.tables}
        for name, row, column, weights in self.shards():
            table = tables[name]
            with torch.no_grad():
                fill_uniform(
                    weights,
                    table_name=name,
                    seed=seed,
                    row_offset=row,
                    column_offset=column,
                    num_columns=table.embedding_dim,
                    bound=1 / math.sqrt(table.num_rows),
                )

    def _order_of(self, delivered: Sequence[str]) -> torch.Tensor | None:
        """Places of the features in the delivered order; None where it is the caller's own."""
        places = [list(delivered).index(name) for name in self._names]
        if places == list(range(len(places))):
            return None
        return torch.tensor(places, device=self._ranks.device)


class _Sharder(EmbeddingBagCollectionSharder):
    """TorchRec's own hides row-wise tables on CPU, where they work."""

    def sharding_types(self, compute_device_type: str) -> list[str]:  # noqa: ARG002
        return [ShardingType.TABLE_WISE.value, ShardingType.ROW_WISE.value]


def _shard(
    plan: Plan, optimizer: TableOptimizer, ranks: Ranks, exchange_dtype: Literal["fp32", "fp16"]
) -> ShardedEmbeddingBagCollection:
    codecs = None
    if exchange_dtype == "fp16":
        config = QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16)
        codecs = get_qcomm_codecs_registry(config, device=ranks.device)
    sharder = _Sharder(
        fused_params={"optimizer": OPTIMIZERS[optimizer.name], "eps": ADAGRAD_EPS, "learning_rate": 0.0},
        qcomm_codecs_registry=codecs,
    )
    collection = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(
                name=table_plan.table.name,
                feature_names=[table_plan.table.name],
                num_embeddings=table_plan.table.num_rows,
                embedding_dim=table_plan.table.embedding_dim,
                init_fn=_leave_as_allocated,
            )
            for table_plan in plan.tables
        ],
        device=torch.device("meta"),
    )
    parameters = construct_module_sharding_plan(
        collection,
        per_param_sharding={table_plan.table.name: _generator(table_plan) for table_plan in plan.tables},
        sharder=cast("Any", sharder),
        local_size=ranks.world_size,
        world_size=ranks.world_size,
        device_type=ranks.device.type,
    )
    env = ShardingEnv.from_process_group(ranks.table_group)
    return sharder.shard(collection, dict(parameters), env, ranks.device)


def _generator(table_plan: TablePlan) -> Any:
    kernel = EmbeddingComputeKernel.FUSED.value
    if table_plan.sharding_type == "table_wise":
        return table_wise(rank=table_plan.ranks[0], compute_kernel=kernel)
    return row_wise(compute_kernel=kernel)


def _leave_as_allocated(_: torch.Tensor) -> None:
    """Instead of TorchRec's initial weights, which depend on the split; see `ShardedTables._initialise`."""


def _table_name(state_key: str) -> str:
    """embedding_bags.<table>.weight"""
    return state_key.removeprefix("embedding_bags.").removesuffix(".weight")
