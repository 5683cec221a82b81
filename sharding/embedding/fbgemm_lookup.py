"""An owner's work by FBGEMM's table-batched embedding: on GPUs, and on CPUs without the own operators.

One lookup of the whole batch under autograd, and one backward pass of it, which updates the tables. Slices leave from
the block that was looked up, and their gradients come back into their place: what the backward pass keeps has none of
its values.
"""

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen

from sharding.embedding.fused_optimizer import EPS, TableOptimizer
from sharding.embedding.input_dist import InputDistOutput
from sharding.embedding.jagged import offsets_of
from sharding.embedding.lookup import LookupBatch
from sharding.embedding.shard import Shard, ShardSpec, shard_specs_on
from sharding.embedding.slices import Slices
from sharding.embedding.transport import FusedUpdateParams
from sharding.planner import Plan

OPTIMIZERS = {
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "sgd": EmbOptimType.EXACT_SGD,
}


class FbgemmLookup:
    """The shards of this rank in one module of FBGEMM's."""

    def __init__(
        self, plan: Plan, optimizer: TableOptimizer, rank: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """dtype: of the exchange; here gradients are fp32."""
        places = shard_specs_on(plan, rank, replicated=False)
        # It cannot be made of no tables.
        self.module = _module(places, optimizer, device) if places else None
        self.shards = _shards(places, self.module, optimizer) if self.module is not None else []
        self.dtype = dtype

    def batch(self, arrived: InputDistOutput, slices: Slices, terms: FusedUpdateParams) -> LookupBatch:
        if self.module is None:
            return _NoBatch(arrived, self.dtype)
        # Noted by the lookup, and used by its backward pass.
        self.module.set_learning_rate(terms.learning_rate)
        return _FbgemmBatch(self.module, len(self.shards), arrived, slices, terms, self.dtype)


class _FbgemmBatch:
    def __init__(
        self,
        module: SplitTableBatchedEmbeddingBagsCodegen,
        num_shards: int,
        arrived: InputDistOutput,
        slices: Slices,
        terms: FusedUpdateParams,
        dtype: torch.dtype,
    ) -> None:
        self._slices, self._terms, self._dtype = slices, terms, dtype
        ids, lengths = _by_shard(arrived, num_shards, slices)
        self._block: torch.Tensor = module(ids, offsets_of(lengths))  # [W * b, C]
        self._arriving: dict[int, torch.Tensor] = {}

    def pooled(self, number: int) -> torch.Tensor:
        return self._rows(number).to(self._dtype)

    def gradient(self, number: int) -> torch.Tensor:
        if self._dtype == self._block.dtype:
            return self._rows(number)
        return self._arriving.setdefault(number, torch.empty_like(self._rows(number), dtype=self._dtype))

    def update(self) -> None:
        while self._arriving:
            number, gradient = self._arriving.popitem()
            self._rows(number).copy_(gradient)
        gradients = self._block.detach()
        if self._terms.gradient_multiplier != 1.0:
            gradients *= self._terms.gradient_multiplier
        self._block.backward(gradients)

    def _rows(self, number: int) -> torch.Tensor:
        return self._slices.rows(self._block.detach(), number)


class _NoBatch:
    """Of a rank without shards."""

    def __init__(self, arrived: InputDistOutput, dtype: torch.dtype) -> None:
        self._nothing = arrived.ids[0].new_empty(0, 0, dtype=dtype)

    def pooled(self, number: int) -> torch.Tensor:  # noqa: ARG002
        return self._nothing

    def gradient(self, number: int) -> torch.Tensor:  # noqa: ARG002
        return self._nothing

    def update(self) -> None:
        pass


def _by_shard(arrived: InputDistOutput, num_shards: int, slices: Slices) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and lengths as FBGEMM takes them: shard by shard, within one by slice, by source rank, by sample."""
    # The places at which slices begin and end, on the host at once.
    ends = torch.stack([arrived.bounds_of(source, num_shards, slices) for source in range(len(arrived.ids))]).tolist()
    ids: list[torch.Tensor] = []
    lengths: list[torch.Tensor] = []
    for shard in range(num_shards):
        for number, (start, end) in enumerate(slices):
            for source, of_source in enumerate(arrived.ids):
                first, behind = ends[source][shard][number : number + 2]
                ids.append(of_source[first:behind])
                lengths.append(arrived.offsets_of(source, shard, start, end).diff())
    return torch.cat(ids), torch.cat(lengths)


def _module(
    places: list[ShardSpec], optimizer: TableOptimizer, device: torch.device
) -> SplitTableBatchedEmbeddingBagsCodegen:
    on_gpu = device.type == "cuda"
    location = EmbeddingLocation.DEVICE if on_gpu else EmbeddingLocation.HOST
    compute = ComputeDevice.CUDA if on_gpu else ComputeDevice.CPU
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(*place.shape, location, compute) for place in places],
        optimizer=OPTIMIZERS[optimizer.name],
        eps=EPS,
        learning_rate=0.0,
        pooling_mode=PoolingMode.SUM,
        device=device,
        stochastic_rounding=False,
    )


def _shards(
    places: list[ShardSpec], module: SplitTableBatchedEmbeddingBagsCodegen, optimizer: TableOptimizer
) -> list[Shard]:
    weights = module.split_embedding_weights()
    if optimizer.name == "sgd":
        states = [table.new_empty(0) for table in weights]
    else:
        states = [kept[0] for kept in module.split_optimizer_states()]
    return [Shard(*piece) for piece in zip(places, weights, states, strict=True)]
