"""Functions that ranks run: build a small model, train it on batches, and return the trained model."""

import math
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dlrm.config import (
    AugmentationConfig,
    AveragingConfig,
    DenseAveragingConfig,
    JobConfig,
    ModelConfig,
    MomentsConfig,
    PreconditionerConfig,
    PruningConfig,
    ResolvedJob,
    VarianceReductionConfig,
    resolve,
)
from dlrm.config.optimizers import CowClipConfig
from dlrm.data.batches import Batch
from dlrm.data.rows import DataSchema, Feature
from dlrm.optimizers import StepRates
from dlrm.train.batch import to_device
from dlrm.train.build import Parts, TrainRows, build_parts
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables
from sharding.embedding.initial_weights import fill_uniform
from sharding.jagged import SequenceShape
from sharding.planner import Plan, Table
from sharding.planner.types import TableDtype
from tests.distributed.reference import MODEL, NUM_DENSE, TABLE_ROWS, GlobalBatch, ReferenceModel
from tests.rank_pool.pool import RankPools
from tests.sharding.planner.plain_plans import make_plain_plan


@dataclass(frozen=True)
class TrainingSetting:
    """Settings of a training: batch, model, optimizers, plan and numerics."""

    global_size: int
    chunk_size: int
    table_optimizer: str = "sgd"
    plan: str = "auto"
    exchange_dtype: str = "fp32"
    transport: str = "auto"
    precision: str = "fp32"
    dense_rate: float = 0.3
    table_rate: float = 0.3
    seed: int = 7
    model: ModelConfig = MODEL
    table_rows: tuple[tuple[str, int], ...] = tuple(TABLE_ROWS.items())
    mean_weight: float = 1.0
    dense_optimizer: str = "sgd"
    dense_settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further settings of the dense optimizer."""
    num_dense: int = NUM_DENSE
    augmentation: AugmentationConfig | None = None
    moments: MomentsConfig | None = None
    variance_reduction: VarianceReductionConfig | None = None
    preconditioner: PreconditionerConfig | None = None
    pruning: PruningConfig | None = None
    """Pruning in a run of 100 steps."""
    averaging: AveragingConfig | None = None
    dense_averaging: DenseAveragingConfig | None = None
    cowclip: CowClipConfig | None = None
    count_exponent: float = 0.0
    initial_accumulator: float = 0.0
    label_smoothing: float = 0.0
    cuda_graphs: str = "auto"
    resident_memory: int | None = None
    """Bytes of the tables that stay in memory; None for all."""
    table_dtype: TableDtype = "fp32"
    sequences: tuple[SequenceShape, ...] = ()

    def resolve_job(self, world_size: int) -> ResolvedJob:
        further = [{"name": t.label, "kind": t.kind} for t in self.model.tasks or () if t.label is not None]
        schema = {"further_labels": further, "dense": [{"name": "x"}]}
        document = {
            "data": {"format": "parquet", "train": ["rows.parquet"], "schema": schema}
            if further
            else {"format": "synthetic"},
            "model": self.model.model_dump(),
            "batch": {
                "global_size": self.global_size,
                "chunk_size": min(self.chunk_size, self.global_size // world_size),
            },
            "dense_optimizer": {"name": self.dense_optimizer, **self.dense_settings},
            "table_optimizer": {
                "name": self.table_optimizer,
                "cowclip": self.cowclip and self.cowclip.model_dump(),
                "count_exponent": self.count_exponent,
                "initial_accumulator": self.initial_accumulator,
            },
            "sharding": {
                "plan": self.plan,
                "exchange_dtype": self.exchange_dtype,
                "transport": self.transport,
                "resident_memory": self.resident_memory,
                "table_dtype": self.table_dtype,
            },
            "augmentation": self.augmentation and self.augmentation.model_dump(),
            "moments": self.moments and self.moments.model_dump(),
            "variance_reduction": self.variance_reduction and self.variance_reduction.model_dump(),
            "preconditioner": self.preconditioner and self.preconditioner.model_dump(),
            "pruning": self.pruning and self.pruning.model_dump(),
            "averaging": self.averaging and self.averaging.model_dump(),
            "dense_averaging": self.dense_averaging and self.dense_averaging.model_dump(),
            "precision": self.precision,
            "run": {"seed": self.seed, "label_smoothing": self.label_smoothing, "keep_model": "last"},
            "resources": {"workers_per_node": world_size, "cuda_graphs": self.cuda_graphs},
        }
        return resolve(JobConfig.model_validate(document))

    def rates_at(self, step: int) -> StepRates:
        pruned = 0.0 if self.pruning is None else self.pruning.compute_share(step / 100)
        return StepRates(self.dense_rate, self.table_rate, pruned=pruned)

    @property
    def schema(self) -> DataSchema:
        tables = [Feature(name, rows) for name, rows in self.table_rows]
        sequences = [
            Feature(f"s{number}", tables[shape.target].num_ids, True, sequence=shape)
            for number, shape in enumerate(self.sequences)
        ]
        return DataSchema(self.num_dense, (*tables, *sequences))

    def cut_share(self, batch: GlobalBatch, ranks: Ranks) -> Batch:
        """Cut out this rank's rows, in the order that the estimator of moments expects."""
        is_grouped = self.moments is not None and self.moments.estimator == "groups"
        num_groups = self.moments.num_groups if self.moments is not None and is_grouped else 1
        return batch.cut_share(ranks.rank, ranks.world_size, num_groups)

    def make_plan(self, world_size: int) -> Plan:
        tables = [
            Table(name, rows, self.model.choose_table_dim(name, rows), dtype=self.table_dtype)
            for name, rows in self.table_rows
        ]
        return make_plain_plan(tables, world_size, self.plan, optimizer=self.table_optimizer)  # pyright: ignore[reportArgumentType]

    def build_parts(self, ranks: Ranks, num_windows: int = 1, **changes: Any) -> Parts:
        resolved, plan = self.resolve_job(ranks.world_size), self.make_plan(ranks.world_size)
        # A data set of one batch.
        rows = TrainRows(self.global_size, self.mean_weight, has_windows=num_windows > 1)
        directory = Path(tempfile.gettempdir())
        return build_parts(resolved, self.schema, plan, ranks, rows, directory=directory, **changes)


@dataclass(frozen=True)
class TrainedModel:
    """Losses and weights of one rank after training."""

    losses: list[float]
    dropped: list[bool]
    dense: dict[str, torch.Tensor]
    shards: list[tuple[str, int, int, torch.Tensor]]


def train(ranks: Ranks, setting: TrainingSetting, batches: list[GlobalBatch]) -> TrainedModel:
    return train_parts(ranks, setting, setting.build_parts(ranks), batches)


def train_parts(ranks: Ranks, setting: TrainingSetting, parts: Parts, batches: list[GlobalBatch]) -> TrainedModel:
    results = [
        parts.step(
            to_device(replace(setting.cut_share(batch, ranks), index=index), ranks.device),
            setting.rates_at(index),
        )
        for index, batch in enumerate(batches)
    ]
    return TrainedModel(
        losses=[result.loss for result in results],
        dropped=[result.is_dropped for result in results],
        dense={name: tensor.detach().clone() for name, tensor in parts.model.state_dict().items()},
        shards=copy_shards(parts.tables),
    )


def copy_shards(tables: ShardedTables) -> list[tuple[str, int, int, torch.Tensor]]:
    """Copy this rank's shards: table, first row, first column and weights of each."""
    return [
        (shard.spec.table.name, shard.spec.block.first_row, shard.spec.block.first_column, shard.weights.clone())
        for shard in tables.list_shards()
    ]


def assemble_tables(
    shards_by_rank: list[list[tuple[str, int, int, torch.Tensor]]], setting: TrainingSetting
) -> dict[str, torch.Tensor]:
    """Assemble tables from the shards of all ranks, in the order of the features; missing cells are NaN."""
    tables = {name: torch.full_like(table, torch.nan) for name, table in draw_initial_tables(setting).items()}
    for shards in shards_by_rank:
        for name, row, column, weights in shards:
            tables[name][row : row + weights.shape[0], column : column + weights.shape[1]] = weights
    return tables


def draw_initial_tables(setting: TrainingSetting) -> dict[str, torch.Tensor]:
    """Draw the initial tables, which do not depend on how they are split."""
    tables = {
        name: torch.empty(num_rows, setting.model.choose_table_dim(name, num_rows))
        for name, num_rows in setting.table_rows
    }
    for name, table in tables.items():
        fill_uniform(
            table,
            table_name=name,
            seed=setting.seed,
            row_offset=0,
            column_offset=0,
            num_columns=table.shape[1],
            bound=1 / math.sqrt(len(table)),
        )
    return tables


def run_reference(setting: TrainingSetting, batches: list[GlobalBatch]) -> tuple[list[float], ReferenceModel]:
    """Train the reference from the same initial weights, and return its losses and itself."""
    reference = ReferenceModel(
        draw_initial_tables(setting),
        setting.table_optimizer,
        setting.seed,
        setting.model,
        setting.mean_weight,
        setting.num_dense,
        setting.initial_accumulator,
        setting.sequences,
    )
    return [reference.step(batch, setting.dense_rate, setting.table_rate) for batch in batches], reference


def are_close(ours: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Whether tensors differ by at most `tolerance` of the largest element."""
    expected = expected.detach().double()
    return bool((ours - expected).abs().max() <= tolerance * expected.abs().max())


def assert_follows_reference(
    rank_pools: RankPools, world_size: int, setting: TrainingSetting, batches: list[GlobalBatch]
) -> None:
    """Train on ranks, and compare losses, dense weights and tables with the reference in float64."""
    by_rank: list[TrainedModel] = rank_pools.of(world_size).run(train, setting, batches)
    losses, reference = run_reference(setting, batches)
    for trained in by_rank:
        torch.testing.assert_close(torch.tensor(trained.losses), torch.tensor(losses), rtol=1e-5, atol=0)
        assert trained.dense.keys() == reference.model.state_dict().keys()
        for name, expected in reference.model.state_dict().items():
            assert are_close(trained.dense[name], expected, 1e-4), name
    initial = draw_initial_tables(setting)
    for name, table in assemble_tables([trained.shards for trained in by_rank], setting).items():
        assert not torch.equal(table, initial[name]), f"table {name} has not moved"
        assert are_close(table, reference.tables[name], 1e-4), name
