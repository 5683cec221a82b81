"""Builds what a job trains: the plan of its tables, the model, the optimizers, the step."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from torch import nn
from torch.optim import Optimizer

from dlrm.checkpoint.state import TrainingState
from dlrm.config import NO_FILES_OF_SEQUENCES, NOT_PRECONDITIONED, JobConfig, JobSpec, ResolvedJob, compute_full_rows
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema
from dlrm.dense_sync import DenseAveraging, make_dense_sync
from dlrm.gradient_stats.estimator import Estimator
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.gradient_stats.layer_noise import LayerNoise
from dlrm.gradient_stats.variance_reduction import VarianceReduction
from dlrm.model import encode_table_name, make_dense_part
from dlrm.optimizers import AveragingOptimizer, SampleMemory, make_dense_optimizer
from dlrm.optimizers.pruning import Pruning
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.planning.machine_resources import describe_machine
from dlrm.planning.request import make_checked_plan
from dlrm.planning.sizes import make_tables
from dlrm.preconditioners import Preconditioner, make_preconditioner
from dlrm.train.augmentation import make_augmentation
from dlrm.train.chunk_graph import ChunkShape, CudaRecorder, GraphedChunk, Recorder
from dlrm.train.dense_pass import ChunkPass, DensePass, EagerChunk
from dlrm.train.profiler import PartClock
from dlrm.train.step import TrainingStep
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.embedding import (
    MappedFiles,
    MappedFilesError,
    ShardedTables,
    TableOptimizer,
    TransportError,
    TransportName,
)
from sharding.embedding.count_rule import CountRule
from sharding.jagged import SequenceShape
from sharding.planner import Plan, PlanError
from sharding.planner.report import PlanReport, make_plan_report

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The model and what trains it."""

    model: nn.Module
    tables: ShardedTables
    optimizer: Optimizer
    reduction: VarianceReduction | None
    preconditioner: Preconditioner | None
    step: TrainingStep
    average: WeightAverage | None
    """Average of the weights; None if the job asks for none."""

    @property
    def dense_averaging(self) -> DenseAveraging | None:
        """Average of the dense weights over ranks; None if their gradients are summed."""
        return self.step.dense_sync if isinstance(self.step.dense_sync, DenseAveraging) else None

    @property
    def evaluated(self) -> DenseAveraging | WeightAverage | AveragingOptimizer | None:
        """Weights to evaluate and keep in the place of a step's own; None if a step's own are evaluated and kept."""
        if self.dense_averaging is not None:
            return self.dense_averaging
        return self.optimizer if isinstance(self.optimizer, AveragingOptimizer) else self.average

    def make_state(self, ranks: Ranks) -> TrainingState:
        """Return the state of the parts, which checkpoints have; the parts themselves are not copied."""
        return TrainingState(
            self.model,
            self.tables,
            self.optimizer,
            self.reduction,
            ranks,
            self.average,
            self.preconditioner,
            self.dense_averaging,
            self.step.pruning,
        )


@dataclass(frozen=True)
class PlannedTables:
    """The plan of a run's tables, and what it is expected to take."""

    resolved: ResolvedJob
    """Job with the chunk of the plan."""
    plan: Plan
    """Plan whose tables are named as in models."""
    report: PlanReport
    """Estimates of the plan; tables are named as their columns."""


def plan_tables(resolved: ResolvedJob, schema: DataSchema) -> PlannedTables:
    """Plan one table for each feature, by what is measured on this machine. Raises DataError."""
    if schema.sequences and resolved.job.preconditioner is not None:
        raise DataError(NOT_PRECONDITIONED, field="preconditioner", valid="null, or data without sequences")
    if schema.sequences and resolved.job.sharding.resident_memory is not None:
        raise DataError(
            NO_FILES_OF_SEQUENCES, field="sharding.resident_memory", valid="null, or data without sequences"
        )
    try:
        tables = make_tables(schema.features, resolved.job.model)
        here = describe_machine(resolved.job)
        request, plan = make_checked_plan(resolved, tables, schema.num_dense, here, schema.sequences)
    except PlanError as error:
        raise DataError(error.message, field=error.field or "sharding", valid="; ".join(error.valid)) from None
    if dict(request.topology.sources)["memory_bytes"] == "default":
        # A preview may assume a memory, but a run would use it up.
        message = "the memory of the GPUs is unknown: nvidia-smi does not answer on this machine"
        raise DataError(message, field="sharding.topology.gpu_memory", valid='the memory of one GPU, such as "80GB"')
    planned_job = resolved.with_planned_chunk(request.chunk_size)
    return PlannedTables(planned_job, plan.rename_tables(encode_table_name), make_plan_report(request, plan))


@dataclass(frozen=True)
class TrainRows:
    """Facts about the training rows that a step needs."""

    num_rows: int
    mean_weight: float = 1.0
    has_windows: bool = False
    """Whether an epoch has several shuffle windows; the batches of one share what its blocks of rows have in common."""


def build_parts(
    resolved: ResolvedJob,
    schema: DataSchema,
    plan: Plan,
    ranks: Ranks,
    rows: TrainRows,
    *,
    directory: Path | None = None,
    recorder: Recorder | None = None,
    tell_fallback: Callable[[str], None] = log.warning,
) -> Parts:
    """Build all parts in their initial state, a function of the job's seed alone. Collective. Raises DataError.

    directory: place for the files of tables, if the job has any. recorder: recorder of chunks that are one launch each;
    None for the device's own, if it has one and the job wants it. tell_fallback: called with the reason if chunks
    cannot be recorded.
    """
    job = resolved.job
    num_tables, sequences = len(schema.tables), schema.sequences
    table_dims = [planned.table.embedding_dim for planned in plan.tables]
    model = make_dense_part(job.model, schema.num_dense, num_tables, job.run.seed, sequences, table_dims)
    model = model.to(ranks.device)
    tables = _make_tables(resolved, plan, sequences, ranks, directory)
    optimizer = make_dense_optimizer(job.dense_optimizer, model.named_parameters())
    has_halves = rows.has_windows
    gradients = _make_gradients(job, model, tables, ranks, has_halves=has_halves)
    layer_noise = LayerNoise([(name, parameter.numel()) for name, parameter in model.named_parameters()])
    reduction = _make_reduction(job, model, gradients, layer_noise.sizes)
    preconditioner = None if job.preconditioner is None else make_preconditioner(job.preconditioner, model, ranks)
    estimator = make_estimator(resolved, model, gradients, has_halves=has_halves)
    augment = make_augmentation(job, len(schema.features), ranks)
    eager = EagerChunk(PartClock(), model, job.precision == "bf16", augment, model.loss)
    run_chunk: ChunkPass = eager
    if recorder is None and ranks.device.type == "cuda" and job.resources.cuda_graphs != "off":
        recorder = CudaRecorder()
    if recorder is not None:
        num_embeddings = num_tables + sum(shape.max_length for shape in sequences)
        shape = ChunkShape(
            resolved.chunk_size, schema.num_dense, num_embeddings, plan.embedding_dim, job.model.num_tasks
        )
        is_compiled = _is_compiled(job, rows)
        run_chunk = GraphedChunk(
            eager,
            estimator,
            gradients,
            shape,
            recorder,
            is_compiled=is_compiled,
            tell_fallback=tell_fallback,
            is_unrecorded=lambda: preconditioner is not None and preconditioner.is_measuring,
        )
    average = _make_average(job, model, tables, ranks, rows)
    step = TrainingStep(
        dense_pass=DensePass(run_chunk, estimator, resolved.chunk_size, preconditioner, job.run.label_smoothing),
        tables=tables,
        gradients=gradients,
        optimizer=optimizer,
        dense_sync=make_dense_sync(job.dense_averaging, model, gradients, optimizer, ranks),
        reduction=reduction,
        preconditioner=preconditioner,
        layer_noise=layer_noise,
        ranks=ranks,
        full_rows=compute_full_rows(job.batch.global_size, rows.num_rows),
        moments_every=resolved.moments_every,
        mean_weight=rows.mean_weight,
        clock=eager.clock,
        pruning=None if job.pruning is None else Pruning(model, optimizer, average),
        num_copies=job.num_copies,
        memory=SampleMemory(optimizer) if job.dense_optimizer.memory == "samples" else None,
    )
    return Parts(model, tables, optimizer, reduction, preconditioner, step, average)


def _is_compiled(job: JobConfig, rows: TrainRows) -> bool:
    """Whether torch.compile makes the kernels of CUDA graphs."""
    assert job.run.epochs != "auto", "the length of a resolved job is decided"
    return job.resources.compiles_graphs(rows.num_rows * job.run.epochs)


def make_estimator(
    resolved: ResolvedJob, model: nn.Module, gradients: GradientBuffer, *, has_halves: bool = False
) -> Estimator:
    """Make the estimator of moments that a job names.

    gradients: of the parameters of `model`, with as many extra sums as moments need, and one more for halves.
    has_halves: whether batches come with halves, each drawn from blocks of the data of its own.
    """
    config = resolved.job.moments
    if config is None:
        return Estimator()
    if config.estimator == "groups":
        return GroupMoments(config, gradients, has_halves=has_halves)
    is_bf16 = resolved.job.precision == "bf16"
    return ExactMoments(config, model, gradients, is_bf16=is_bf16, has_halves=has_halves)


def _make_tables(
    resolved: ResolvedJob, plan: Plan, sequences: Sequence[SequenceShape], ranks: Ranks, directory: Path | None
) -> ShardedTables:
    """Make the tables. Raises DataError if what the job asks for does not work here."""
    job, config = resolved.job, resolved.job.table_optimizer
    rule = CountRule(**config.count_rule)
    scale, size = resolved.gradient_scale, job.batch.global_size
    mapped = None
    if job.sharding.resident_memory is not None:
        assert directory is not None, "tables in files have a directory"
        mapped = MappedFiles(directory, job.sharding.resident_memory)
    try:
        return ShardedTables(
            plan,
            TableOptimizer(config.name, scale, size, resolved.table_initial_state, rule),
            ranks,
            exchange_dtype=job.sharding.exchange_dtype,
            seed=job.run.seed,
            chunk_size=resolved.chunk_size,
            pooling=job.model.pooling,
            transport=job.sharding.transport,
            mapped=mapped,
            sequences=sequences,
        )
    except MappedFilesError as error:
        valid = "a run directory on a disk with that much space, or null for tables in memory"
        raise DataError(str(error), field="sharding.resident_memory", valid=valid) from None
    except TransportError as error:
        if mapped is not None:
            raise DataError(str(error), field="sharding.resident_memory", valid="null") from None
        if job.sharding.table_dtype == "int8" and job.sharding.transport == "auto":
            raise DataError(str(error), field="sharding.table_dtype", valid='"fp32"') from None
        others = [name for name in ("auto", *get_args(TransportName)) if name != job.sharding.transport]
        valid = ", ".join(f'"{name}"' for name in others)
        raise DataError(str(error), field="sharding.transport", valid=valid) from None


def _make_gradients(
    job: JobSpec, model: nn.Module, tables: ShardedTables, ranks: Ranks, *, has_halves: bool
) -> GradientBuffer:
    num_extra = 0 if job.moments is None else job.moments.num_extra_sums + has_halves
    parameters = list(model.parameters())
    return GradientBuffer(parameters, ranks, num_extra_sums=num_extra, is_in_memory=tables.is_in_memory)


def _make_average(
    job: JobSpec, model: nn.Module, tables: ShardedTables, ranks: Ranks, rows: TrainRows
) -> WeightAverage | None:
    if job.averaging is None:
        return None
    assert job.run.epochs != "auto", "the length of a resolved job is decided"
    return WeightAverage(model, tables, ranks, job.averaging.half_life_fraction * rows.num_rows * job.run.epochs)


def _make_reduction(
    job: JobSpec, model: nn.Module, gradients: GradientBuffer, layer_sizes: list[int]
) -> VarianceReduction | None:
    if job.variance_reduction is None:
        return None
    return VarianceReduction(
        job.variance_reduction,
        list(model.parameters()),
        gradients,
        layer_sizes=layer_sizes,
        is_smoothed=job.dense_optimizer.is_adaptive,
        seed=job.run.seed,
    )
