"""TorchRec's own training step, built like its `examples/golden_training`, as the yardstick.

It has TorchRec's DLRM in DistributedModelParallel with a plan of TorchRec's planner, row-wise Adagrad fused into the
tables' backward pass, and TrainPipelineSparseDist; the dense parameters use Adam, as in the measured jobs. Its initial
weights and learning rates are ours, so that both compute the same, as `tests/benchmarks/test_against_torchrec.py`
checks.
"""

import logging
import math
import warnings
from collections.abc import Iterator
from itertools import cycle
from typing import Any, cast

import psutil
import torch
from torch import nn
from torchrec.datasets.utils import Batch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.distributed.types import ShardingPlan
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.cells import Cell
from benchmarks.training import NUM_DENSE
from dlrm.model import make_dense_part
from dlrm.optimizers import StepRates
from dlrm.train.batch import DeviceBatch
from sharding.comm.process_groups import Ranks
from sharding.embedding.initial_weights import fill_uniform

ADAGRAD_EPS = 1e-8


class TorchRecStep:
    """TorchRec's training step. A call on every rank together makes one step on the next batch."""

    def __init__(
        self, cell: Cell, ranks: Ranks, batches: list[DeviceBatch], rates: StepRates, *, has_fp16_wire: bool
    ) -> None:
        """Build the model, its sharding plan and its pipeline. Collective.

        batches: this rank's share of the batches, used in turn without end. has_fp16_wire: exchange pooled embeddings
        and their gradients in fp16.
        """
        warnings.filterwarnings("ignore", category=FutureWarning, module="torchrec")
        for name in ("torchrec", "torch.fx._symbolic_trace"):
            logging.getLogger(name).setLevel(logging.ERROR)
        names = [feature.name for feature in cell.shape.schema.features]
        model, self._device = _make_model(cell, names, ranks.device), ranks.device
        _copy_our_dense_weights(cell, model)
        sharder = _make_sharder(ranks.device, has_fp16_wire=has_fp16_wire)
        plan = _make_plan(cell, model, sharder, names, ranks)
        rate = {"lr": rates.table, "eps": ADAGRAD_EPS}
        apply_optimizer_in_backward(RowWiseAdagrad, model.model.sparse_arch.parameters(), rate)
        self.model = DistributedModelParallel(model, device=ranks.device, plan=plan, sharders=[cast("Any", sharder)])
        _draw_our_tables(cell, self.model)
        dense = {name: weight for name, weight in self.model.named_parameters() if "embedding_bags" not in name}
        # Fused is one launch on a GPU.
        fused = ranks.device.type == "cuda" or None
        optimizer = KeyedOptimizerWrapper(dense, lambda weights: torch.optim.Adam(weights, lr=rates.dense, fused=fused))
        forward = self._forward_in_bf16 if cell.shape.precision == "bf16" else None
        self._pipeline = TrainPipelineSparseDist(self.model, optimizer, ranks.device, custom_model_fwd=forward)
        self._batches: Iterator[Batch] = cycle([_convert_batch(batch, names) for batch in batches])

    def __call__(self) -> torch.Tensor:
        """Make one step; return the mean loss of this rank's share before the update, a scalar. Collective."""
        loss, _, _ = self._pipeline.progress(self._batches)
        return loss

    def _forward_in_bf16(self, batch: Batch | None) -> Any:
        with torch.autocast(self._device.type, torch.bfloat16):
            return self.model(batch)


def _make_model(cell: Cell, names: list[str], device: torch.device) -> DLRMTrain:
    """Build TorchRec's DLRM with its tables on the meta device."""
    tables = [
        EmbeddingBagConfig(
            name=name, feature_names=[name], num_embeddings=cell.rows_per_table, embedding_dim=cell.embedding_dim
        )
        for name in names
    ]
    config = cell.shape.job.job.model
    dlrm = DLRM(
        embedding_bag_collection=EmbeddingBagCollection(tables=tables, device=torch.device("meta")),
        dense_in_features=NUM_DENSE,
        dense_arch_layer_sizes=list(config.bottom_mlp),
        over_arch_layer_sizes=list(config.top_mlp),
        dense_device=device,
    )
    return DLRMTrain(dlrm)


def _make_sharder(device: torch.device, *, has_fp16_wire: bool) -> EmbeddingBagCollectionSharder:
    if not has_fp16_wire:
        return EmbeddingBagCollectionSharder()
    # In fp16 the gradients of a mean over a large batch flush to zero (TorchRec's loss scale does not help), so tables
    # do not learn. The speed can still be measured.
    config = QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16)
    return EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(config, device=device))


def _make_plan(
    cell: Cell, model: nn.Module, sharder: EmbeddingBagCollectionSharder, names: list[str], ranks: Ranks
) -> ShardingPlan:
    """Plan the sharding of whole tables with TorchRec's planner. Collective.

    Column-wise sharding would make row-wise Adagrad another method, and data-parallel tables are not trained in the
    backward pass.
    """
    topology = Topology(
        world_size=ranks.world_size,
        compute_device=ranks.device.type,
        local_world_size=ranks.world_size,
        hbm_cap=torch.cuda.mem_get_info(ranks.device)[1] if ranks.device.type == "cuda" else None,
        ddr_cap=psutil.virtual_memory().total // ranks.world_size,
    )
    constraint = ParameterConstraints(
        sharding_types=["table_wise"], compute_kernels=["fused"], pooling_factors=[cell.ids_per_bag]
    )
    planner = EmbeddingShardingPlanner(
        topology,
        batch_size=cell.batch_size // ranks.world_size,
        constraints=dict.fromkeys(names, constraint),
        debug=False,
    )
    return planner.collective_plan(model, [cast("Any", sharder)], ranks.table_group)


def _convert_batch(batch: DeviceBatch, names: list[str]) -> Batch:
    features = KeyedJaggedTensor(keys=names, values=batch.ids.values, lengths=batch.ids.lengths.flatten())
    return Batch(dense_features=batch.dense, sparse_features=features, labels=batch.labels)


@torch.no_grad()
def _copy_our_dense_weights(cell: Cell, model: DLRMTrain) -> None:
    """Copy the initial dense weights of our job, which are a function of its seed, into TorchRec's model."""
    job = cell.shape.job.job
    ours = make_dense_part(job.model, NUM_DENSE, cell.num_tables, job.run.seed)
    order = _find_their_order(cell.num_tables + 1, cell.embedding_dim)
    theirs = [weight for name, weight in model.named_parameters() if "embedding_bags" not in name]
    for weight, (name, our_weight) in zip(theirs, ours.named_parameters(), strict=True):
        weight.copy_(our_weight[:, order] if name == "top.layers.0.weight" else our_weight)


@torch.no_grad()
def _draw_our_tables(cell: Cell, model: nn.Module) -> None:
    """Fill the tables of the sharded `model` with the initial weights of our job."""
    state = cast("dict[str, Any]", model.state_dict())
    for key in [key for key in state if "embedding_bags" in key]:
        *_, name, _ = key.split(".")
        for shard in state[key].local_shards():
            row, column = shard.metadata.shard_offsets
            fill_uniform(
                shard.tensor,
                table_name=name,
                seed=cell.shape.job.job.run.seed,
                row_offset=row,
                column_offset=column,
                num_columns=cell.embedding_dim,
                bound=1 / math.sqrt(cell.rows_per_table),
            )


def _find_their_order(num_vectors: int, embedding_dim: int) -> torch.Tensor:
    """Compute the places of TorchRec's inputs of the top MLP among ours, [D + num_vectors (num_vectors - 1) / 2].

    TorchRec takes the dot products above the diagonal row by row, and we take those below it.
    """
    row, column = torch.triu_indices(num_vectors, num_vectors, offset=1)
    below = column * (column - 1) // 2 + row
    return torch.cat([torch.arange(embedding_dim), embedding_dim + below])
