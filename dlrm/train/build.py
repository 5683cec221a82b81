"""Builds what a job trains: the plan of its tables, the model, the optimizers, the step."""

from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from dlrm.config import JobSpec, ResolvedJob
from dlrm.data.batches import full_batch_rows
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema
from dlrm.gradient_stats import make_estimator
from dlrm.gradient_stats.noise import LayerNoise
from dlrm.gradient_stats.variance_reduction import VarianceReduction
from dlrm.model import make_dense_part, table_name
from dlrm.optimizers import make_dense_optimizer
from dlrm.planning.here import find_here
from dlrm.planning.request import planned
from dlrm.planning.sizes import tables_of
from dlrm.train.dense_pass import DensePass
from dlrm.train.part_clock import PartClock
from dlrm.train.step import TrainingStep
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables, TableOptimizer
from sharding.planner import Plan, PlanError
from sharding.planner.report import PlanReport, report_plan


@dataclass(frozen=True)
class Parts:
    """What is trained, and what trains it."""

    model: nn.Module
    tables: ShardedTables
    optimizer: Optimizer
    reduction: VarianceReduction | None
    step: TrainingStep


@dataclass(frozen=True)
class PlannedTables:
    """Where the tables of a run lie, and what that is expected to take."""

    plan: Plan
    """Its tables are named as in models."""
    answer: PlanReport
    """Its tables are named as their columns."""


def plan_tables(resolved: ResolvedJob, schema: DataSchema) -> PlannedTables:
    """One table a feature. By what is measured on this machine. Raises DataError."""
    try:
        tables = tables_of(schema.features, resolved.job.model.embedding_dim)
        request, plan = planned(resolved, tables, schema.num_dense, find_here(resolved.job))
    except PlanError as error:
        raise DataError(error.message, field=error.field or "sharding", valid="; ".join(error.valid)) from None
    return PlannedTables(plan.renamed(table_name), report_plan(request, plan))


@dataclass(frozen=True)
class TrainRows:
    """What a training step must know of the rows that it trains on."""

    num_rows: int
    mean_weight: float = 1.0
    num_windows: int = 1
    """Shuffle windows of an epoch; with several, the batches of one share what its blocks of rows have in common."""


def build_parts(resolved: ResolvedJob, schema: DataSchema, plan: Plan, ranks: Ranks, rows: TrainRows) -> Parts:
    """Everything in its initial state, a function of the job's seed alone. Collective."""
    job = resolved.job
    model = make_dense_part(job.model, schema.num_dense, len(schema.features), job.run.seed).to(ranks.device)
    tables = ShardedTables(
        plan,
        TableOptimizer(job.table_optimizer.name, resolved.gradient_scale),
        ranks,
        exchange_dtype=job.sharding.exchange_dtype,
        seed=job.run.seed,
        chunk_size=resolved.chunk_size,
        pooling=job.model.pooling,
        transport=job.sharding.transport,
    )
    optimizer = make_dense_optimizer(job.dense_optimizer, model.named_parameters())
    has_halves = rows.num_windows > 1
    num_extra = 0 if job.moments is None else job.moments.num_extra_sums + has_halves
    sums = GradientBuffer(list(model.parameters()), ranks, num_extra_sums=num_extra, is_in_memory=tables.is_in_memory)
    layer_noise = LayerNoise([(name, parameter.numel()) for name, parameter in model.named_parameters()])
    reduction = _make_reduction(job, model, optimizer, sums, layer_noise.sizes)
    estimator = make_estimator(resolved, model, sums, has_halves=has_halves)
    clock = PartClock()
    step = TrainingStep(
        dense_pass=DensePass(clock, model, estimator, is_bf16=job.precision == "bf16"),
        tables=tables,
        sums=sums,
        optimizer=optimizer,
        reduction=reduction,
        layer_noise=layer_noise,
        ranks=ranks,
        full_rows=full_batch_rows(job.batch.global_size, rows.num_rows),
        mean_weight=rows.mean_weight,
        clock=clock,
    )
    return Parts(model, tables, optimizer, reduction, step)


def _make_reduction(
    job: JobSpec, model: nn.Module, optimizer: Optimizer, sums: GradientBuffer, layer_sizes: list[int]
) -> VarianceReduction | None:
    if job.variance_reduction is None:
        return None
    return VarianceReduction(
        job.variance_reduction,
        optimizer,
        list(model.parameters()),
        sums,
        layer_sizes=layer_sizes,
        is_smoothed=job.dense_optimizer.is_adaptive,
        seed=job.run.seed,
    )
