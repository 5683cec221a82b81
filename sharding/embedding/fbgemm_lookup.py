"""The lookup by FBGEMM's table-batched embedding: on GPUs, and on CPUs without the native operators.

The whole batch is looked up at once under autograd, and one backward pass of it makes the fused update. Slices leave
from the block that was looked up, and their gradients come back into the same memory: the backward pass keeps none of
its values.
"""

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from sharding.embedding.fused_optimizer import EPS, TableOptimizer
from sharding.embedding.input_dist import InputDistOutput
from sharding.embedding.lookup import LookupBatch
from sharding.embedding.offsets import compute_offsets
from sharding.embedding.shard import Shard, ShardSpec, list_shard_specs
from sharding.embedding.slices import Slices
from sharding.embedding.transport import FusedUpdateParams
from sharding.planner import Plan

OPTIMIZERS = {
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "sgd": EmbOptimType.EXACT_SGD,
}


class FbgemmLookup:
    """The shards of this rank in one module of FBGEMM."""

    def __init__(
        self, plan: Plan, optimizer: TableOptimizer, rank: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate the shards of `rank` on `device`. dtype: of the exchange; the module's own gradients are fp32."""
        specs = list_shard_specs(plan, rank, replicated=False)
        # FBGEMM cannot make a module of no tables.
        self.module = _make_module(specs, optimizer, device) if specs else None
        self.shards = _make_shards(specs, self.module, optimizer) if self.module is not None else []
        self.dtype = dtype

    def start_batch(self, ids: InputDistOutput, slices: Slices, learning_rate: float) -> LookupBatch:
        """Look up the ids of one batch. learning_rate: of its update, which FBGEMM fixes in the forward pass."""
        if self.module is None:
            return _NoBatch(ids, self.dtype)
        self.module.set_learning_rate(learning_rate)
        return _FbgemmBatch(self.module, len(self.shards), ids, slices, learning_rate, self.dtype)


class _FbgemmBatch:
    def __init__(
        self,
        module: SplitTableBatchedEmbeddingBagsCodegen,
        num_shards: int,
        ids: InputDistOutput,
        slices: Slices,
        learning_rate: float,
        dtype: torch.dtype,
    ) -> None:
        self._slices, self._learning_rate, self._dtype = slices, learning_rate, dtype
        values, lengths = _sort_by_shard(ids, num_shards, slices)
        self._block: torch.Tensor = module(values, compute_offsets(lengths))  # [W * b, C]
        self._received: dict[int, torch.Tensor] = {}
        """Gradients by slice in the dtype of the exchange, where that is not the block's."""

    def pool_slice(self, number: int) -> torch.Tensor:
        return self._view_rows(number).to(self._dtype)

    def get_gradient_slice(self, number: int) -> torch.Tensor:
        if self._dtype == self._block.dtype:
            return self._view_rows(number)
        return self._received.setdefault(number, torch.empty_like(self._view_rows(number), dtype=self._dtype))

    def apply_update(self, params: FusedUpdateParams) -> None:
        assert params.learning_rate == self._learning_rate, "FBGEMM has fixed the learning rate in the lookup"
        while self._received:
            number, gradient = self._received.popitem()
            self._view_rows(number).copy_(gradient)
        gradients = self._block.detach()
        if params.gradient_multiplier != 1.0:
            gradients *= params.gradient_multiplier
        self._block.backward(gradients)

    def _view_rows(self, number: int) -> torch.Tensor:
        return self._slices.view_rows(self._block.detach(), number)


class _NoBatch:
    """The batch of a rank without shards."""

    def __init__(self, ids: InputDistOutput, dtype: torch.dtype) -> None:
        self._nothing = ids.ids[0].new_empty(0, 0, dtype=dtype)

    def pool_slice(self, number: int) -> torch.Tensor:  # noqa: ARG002
        return self._nothing

    def get_gradient_slice(self, number: int) -> torch.Tensor:  # noqa: ARG002
        return self._nothing

    def apply_update(self, params: FusedUpdateParams) -> None:
        pass


def _sort_by_shard(ids: InputDistOutput, num_shards: int, slices: Slices) -> tuple[torch.Tensor, torch.Tensor]:
    """Order ids and lengths as FBGEMM takes them: by shard, by slice, by source rank, by sample."""
    # Where slices begin and end, in one transfer to the host.
    bounds = torch.stack([ids.find_slice_bounds(source, num_shards, slices) for source in range(len(ids.ids))]).tolist()
    values: list[torch.Tensor] = []
    lengths: list[torch.Tensor] = []
    for shard in range(num_shards):
        for number, (start, end) in enumerate(slices):
            for source, of_source in enumerate(ids.ids):
                first_id, end_id = bounds[source][shard][number : number + 2]
                values.append(of_source[first_id:end_id])
                lengths.append(ids.view_offsets(source, shard, start, end).diff())
    return torch.cat(values), torch.cat(lengths)


def _make_module(
    specs: list[ShardSpec], optimizer: TableOptimizer, device: torch.device
) -> SplitTableBatchedEmbeddingBagsCodegen:
    on_gpu = device.type == "cuda"
    location = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
    compute = ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(*spec.shape, location, compute) for spec in specs],
        optimizer=OPTIMIZERS[optimizer.name],
        eps=EPS,
        learning_rate=0.0,
        pooling_mode=PoolingMode.SUM,
        device=device,
        stochastic_rounding=False,
    )


def _make_shards(
    specs: list[ShardSpec], module: SplitTableBatchedEmbeddingBagsCodegen, optimizer: TableOptimizer
) -> list[Shard]:
    weights = module.split_embedding_weights()
    if optimizer.name == "sgd":
        states = [table.new_empty(0) for table in weights]
    else:
        states = [kept[0] for kept in module.split_optimizer_states()]
    return [Shard(*of_shard) for of_shard in zip(specs, weights, states, strict=True)]
