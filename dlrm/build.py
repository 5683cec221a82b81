"""Builds what a job trains: the plan of its tables, the model, the optimizers, the step."""

from dataclasses import dataclass

from torch.optim import Optimizer

from dlrm.config import ResolvedJob
from dlrm.data.rows import DataSchema
from dlrm.model import DLRM, table_name
from dlrm.optimizers import make_dense_optimizer
from dlrm.step import StepSettings, TrainingStep
from sharding.plan import Plan, Table, make_plan
from sharding.ranks import Ranks
from sharding.tables import ShardedTables, TableOptimizer


@dataclass(frozen=True)
class Parts:
    """What is trained, and what trains it."""

    model: DLRM
    tables: ShardedTables
    optimizer: Optimizer
    step: TrainingStep


def plan_tables(resolved: ResolvedJob, schema: DataSchema) -> Plan:
    """One table a feature."""
    job = resolved.job
    tables = [Table(table_name(feature.name), feature.num_ids, job.model.embedding_dim) for feature in schema.features]
    return make_plan(tables, job.resources.world_size, job.sharding.plan)


def build_parts(
    resolved: ResolvedJob, schema: DataSchema, plan: Plan, ranks: Ranks, *, mean_train_weight: float
) -> Parts:
    """Everything in its initial state, a function of the job's seed alone. Collective."""
    job = resolved.job
    model = DLRM(job.model, schema.num_dense, len(schema.features), job.run.seed).to(ranks.device)
    tables = ShardedTables(
        plan,
        TableOptimizer(job.table_optimizer.name, resolved.gradient_scale),
        ranks,
        exchange_dtype=job.sharding.exchange_dtype,
        seed=job.run.seed,
    )
    optimizer = make_dense_optimizer(job.dense_optimizer, model.parameters())
    settings = StepSettings(resolved.chunk_size, job.precision == "bf16", mean_train_weight)
    return Parts(model, tables, optimizer, TrainingStep(model, tables, optimizer, ranks, settings))
