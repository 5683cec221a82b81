"""The job document that a user submits."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, StringConstraints, model_validator

from dlrm.config.attention import NO_SEQUENCES, NOT_PRECONDITIONED
from dlrm.config.augmentation import AugmentationConfig
from dlrm.config.base import FALSE_IS_NULL, MAX_SECONDS, Config
from dlrm.config.batch import MAX_BATCH, BatchConfig, BatchSpec
from dlrm.config.data import DataConfig, Hashing
from dlrm.config.dense_averaging import DenseAveragingConfig, check_dense_averaging
from dlrm.config.errors import ConfigError, invalid, parse_document
from dlrm.config.follow import check_endless, fill_endless
from dlrm.config.messages import format_count
from dlrm.config.model import NORMALIZED, SETTINGS, ModelConfig, ModelSpec
from dlrm.config.moments import MAX_GROUPS, MomentsConfig, VarianceReductionConfig
from dlrm.config.optimizers import (
    AveragingConfig,
    DenseOptimizerConfig,
    DenseOptimizerSpec,
    TableOptimizerConfig,
    TableOptimizerSpec,
)
from dlrm.config.preconditioner import PreconditionerConfig
from dlrm.config.presets import PresetName, begin_record, fill_preset
from dlrm.config.pruning import PruningConfig, check_pruning
from dlrm.config.resident_memory import check_resident_memory
from dlrm.config.resources import NodeRange, ResourcesConfig
from dlrm.config.run import RUN_IN_TIME, RunConfig, RunSpec
from dlrm.config.sharding import COLUMN_TYPES, WHOLE_ROW_TYPES, ShardingConfig
from dlrm.config.table_dims import find_idle_rule
from dlrm.config.table_dtype import check_table_dtype
from dlrm.config.tasks import check_labels

ORDER_BYTES_PER_ROW = 8
"""Bytes of a row's number; every rank that reads a synthetic log holds the numbers of all rows."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
"""Name of a job, a label, a key or an owner."""
LabelValue = Annotated[str, StringConstraints(max_length=63)]
MAX_LABELS = 32
MAX_PRIORITY = 100


class JobSpec(Config):
    """A training job, as its document states it. Every field except `data.train` has a default."""

    name: Name = "dlrm"
    """Name of the job; need not be unique."""
    labels: dict[Name, LabelValue] = Field(default={}, max_length=MAX_LABELS)
    """Free key-value pairs by which jobs can be found."""
    preset: PresetName | None = None
    """Name of a set of values for the fields that the document leaves out; null: their defaults. large_batch: the
    largest batch, up to 524,288 samples, that leaves enough steps, with the best optimizers and rates for it."""
    filled_by_preset: list[str] | None = None
    """Dotted paths of the fields whose values come from the preset and not from the document: written when a document
    is read, for later readers. null: not recorded. Leave it out: only fields that have the preset's value count
    here."""
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    """Priority of the job; jobs of higher priority start first."""
    max_restarts: int = Field(default=3, ge=0, le=100)
    """Largest number of new attempts in a row after a worker has crashed; an attempt that wrote a later checkpoint
    begins a new row."""
    deadline_seconds: int | None = Field(default=None, ge=1, le=MAX_SECONDS)
    """Seconds after which the job is stopped, from the point in `deadline_from`; null never stops it."""
    deadline_from: Literal["start", "submission"] = "start"
    """Point from which `deadline_seconds` count: the first start of the job, or its submission, so that they include
    the time for which it waits."""
    model: ModelSpec = ModelSpec()
    data: DataConfig
    batch: BatchSpec = BatchSpec()
    augmentation: Annotated[AugmentationConfig | None, FALSE_IS_NULL] = None
    """Batch augmentation; null or false: each sample is trained on once, as it is."""
    moments: Annotated[MomentsConfig | None, FALSE_IS_NULL] = MomentsConfig()
    """Measurement of gradient moments. null (false in TOML, which has no null) measures none: then there is no noise
    scale, and no advice on the batch. Left out beside `augmentation` or `dense_averaging` it is null, or groups if
    `augmentation` is with `variance_reduction`."""
    variance_reduction: Annotated[VarianceReductionConfig | None, FALSE_IS_NULL] = None
    """Variance reduction of the dense gradient; null or false: the optimizer uses the gradient as it is."""
    preconditioner: Annotated[PreconditionerConfig | None, FALSE_IS_NULL] = None
    """Preconditioner of the dense gradient, after variance reduction and before the optimizer; null or false: none."""
    dense_optimizer: DenseOptimizerSpec = DenseOptimizerSpec()
    table_optimizer: TableOptimizerSpec = TableOptimizerSpec()
    pruning: Annotated[PruningConfig | None, FALSE_IS_NULL] = None
    """Pruning of the dense matrices while they are trained; null or false: none. `run.keep_model` is then last and
    `run.patience` null if they are left out."""
    averaging: Annotated[AveragingConfig | None, FALSE_IS_NULL] = None
    """Average of the weights over the steps, which is evaluated and exported; null or false: the weights of a step
    are."""
    dense_averaging: Annotated[DenseAveragingConfig | None, FALSE_IS_NULL] = None
    """Averaging of the dense weights over ranks in the place of their gradients; null or false: all ranks sum their
    gradients, and have the same weights. There are no `moments` then: no rank has the gradient of the batch."""
    sharding: ShardingConfig = ShardingConfig()
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the matrix products in the dense part; weights and sums are always fp32."""
    run: RunSpec = RunSpec()
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def num_copies(self) -> int:
        """Number of times that the dense part is trained on each sample of a batch."""
        return 1 if self.augmentation is None else self.augmentation.copies

    @model_validator(mode="before")
    @classmethod
    def _fill_fields(cls, document: Any) -> Any:
        document = fill_preset(document)
        if not isinstance(document, dict):
            return document
        fields = cast("dict[str, Any]", document)
        given = {name for name, value in fields.items() if value is not None and value is not False}
        if "moments" not in fields and "dense_averaging" in given:
            fields = {**fields, "moments": None}
        elif "moments" not in fields and "augmentation" in given:
            fields = {**fields, "moments": {"estimator": "groups"} if "variance_reduction" in given else None}
        if "pruning" in given and isinstance(run := fields.get("run", {}), dict):
            fields = {**fields, "run": {"keep_model": "last", "patience": None, **run}}
        data = fields.get("data")
        if isinstance(data, DataConfig):
            data = data.model_dump(include={"order", "follow"})
        rows = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        is_followed = rows.get("follow") not in (None, False)
        if (is_followed or rows.get("order") == "time") and isinstance(run := fields.get("run", {}), dict):
            fields = {**fields, "run": {**RUN_IN_TIME, **run}}
        return fill_endless(fields) if is_followed else fields

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        window_rows = self.data.window_rows
        if window_rows is None:
            return self
        for field, size in self.batch.list_sizes():
            if size > window_rows:
                message = f"{size:,} is more than the {window_rows:,} rows of a window of data.order time"
                raise invalid(f"batch.{field}", message, f"at most {window_rows:,}, or a larger data.window_rows")
        for name, value in RUN_IN_TIME.items():
            if getattr(self.run, name) != value:
                raise invalid(f"run.{name}", "is for shuffled rows, and data.order is time", json.dumps(value))
        return self

    @model_validator(mode="after")
    def _check_follow(self) -> Self:
        if self.data.follow is None:
            return self
        check_endless(self)
        schedule = self.dense_optimizer.schedule
        if schedule.follows_gain:
            message = f"{schedule.scaling} counts steps by their share of a run, and data.follow has no end"
            raise invalid("dense_optimizer.schedule.scaling", message, "another scaling")
        if any(task.given is not None for task in self.model.tasks or ()):
            message = "a task that is given another one counts the labels of all rows, and data.follow never has them"
            raise invalid("model.tasks", message, "tasks without given")
        if self.resources.node_range[-1] > 1:
            raise invalid("resources.nodes", "data.follow prepares its files on one machine", "1")
        return self

    @model_validator(mode="after")
    def _check_deltas(self) -> Self:
        if not self.run.deltas:
            return self
        if self.resources.node_range[-1] > 1:
            message = "deltas need the files of all ranks on one disk"
            raise invalid("resources.nodes", message, "1, or run.deltas false")
        for place in self.data.vocabulary.dynamic_rules:
            message = "changes which id has a row, and a delta has no ids"
            raise invalid(f"data.vocabulary.{place}", message, "null, or run.deltas false")
        return self

    @model_validator(mode="after")
    def _check_deadline(self) -> Self:
        if self.deadline_from == "submission" and self.deadline_seconds is None:
            message = "'submission' has no effect without deadline_seconds"
            raise invalid("deadline_from", message, '"start", or a number of deadline_seconds')
        return self

    @model_validator(mode="after")
    def _check_batch(self) -> Self:
        world_size, global_size = self.resources.world_size, self.batch.global_size
        least = self.resources.least_world_size
        for field, batch_size in self.batch.list_sizes():
            if batch_size % world_size:
                raise invalid(
                    f"batch.{field}",
                    f"{batch_size} is not divisible by {world_size} ranks",
                    self.batch.suggest_sizes(field, math.lcm(world_size, least)),
                )
            if batch_size % least:
                message = f"the {least} ranks of {self.resources.node_range[0]} machines do not divide batch.{field}"
                raise invalid("resources.nodes", message, "a min whose ranks divide it")
        chunk_size = self.batch.chunk_size
        max_chunk_size = (MAX_BATCH if global_size == "auto" else global_size) // world_size
        if chunk_size != "auto" and not 1 <= chunk_size <= max_chunk_size:
            raise invalid(
                "batch.chunk_size",
                f"{chunk_size} is not within one rank's share",
                f'"auto", or 1 to {max_chunk_size}',
            )
        return self

    @model_validator(mode="after")
    def _check_sharding(self) -> Self:
        sharding, world_size = self.sharding, self.resources.world_size
        types = [("sharding.plan", sharding.plan, None)]
        types += [(f"sharding.tables.{number}", rule.type, rule.ranks) for number, rule in enumerate(sharding.tables)]
        for field, kind, ranks in types:
            if kind in COLUMN_TYPES and self.table_optimizer.name == "rowwise_adagrad":
                raise invalid(
                    field if field == "sharding.plan" else f"{field}.type",
                    f"{kind} splits the rows of tables, but rowwise_adagrad keeps one number for each whole row",
                    f"auto, {', '.join(WHOLE_ROW_TYPES)}; "
                    "or table_optimizer.name adagrad or sgd, which keep one number for each weight, or none",
                )
            if ranks and max(ranks) >= world_size:
                valid = f"ranks from 0 to {world_size - 1}"
                raise invalid(
                    f"{field}.ranks",
                    f"there is no rank {max(ranks)}: the job has {format_count(world_size, 'rank')}",
                    valid,
                )
        if sharding.transport == "memory" and (self.resources.num_nodes > 1 or self.resources.gpus_per_worker):
            message = "ranks on several machines or on GPUs share no memory"
            valid = '"auto" or "torchrec"' if self.resources.gpus_per_worker else '"auto", "network" or "torchrec"'
            raise invalid("sharding.transport", message, valid)
        if sharding.transport == "network" and self.resources.gpus_per_worker:
            message = "the network transport keeps tables in the memory of CPUs, and these ranks have GPUs"
            raise invalid("sharding.transport", message, '"auto" or "torchrec"')
        return self

    @model_validator(mode="after")
    def _check_table_dims(self) -> Self:
        if self.data.is_raw:
            tables = (column.feature for column in self.data.raw_schema.categorical if column.sequence is None)
            if (idle := find_idle_rule(self.model.table_dims, tables)) is not None:
                raise invalid(idle.field, idle.message, idle.valid)
        return self

    @model_validator(mode="after")
    def _check_table_dtype(self) -> Self:
        check_table_dtype(self.sharding, self.resources, has_average=self.averaging is not None)
        return self

    @model_validator(mode="after")
    def _check_resident_memory(self) -> Self:
        has_average = self.averaging is not None
        check_resident_memory(self.sharding, self.data, self.run, self.resources, has_average=has_average)
        return self

    @model_validator(mode="after")
    def _check_augmentation(self) -> Self:
        if self.augmentation is None:
            return self
        if self.moments is not None and self.moments.estimator == "exact":
            message = "exact squares the gradient of each copy, and a sample's gradient is the mean over its copies"
            raise invalid("moments.estimator", message, '"groups"; or moments null, or augmentation null')
        if self.resources.gpus_per_worker and self.resources.cuda_graphs != "off":
            message = "CUDA graphs do not record the copies of augmentation"
            raise invalid("resources.cuda_graphs", message, '"off", or augmentation null')
        return self

    @model_validator(mode="after")
    def _check_preconditioner(self) -> Self:
        if self.preconditioner is not None and self.dense_optimizer.is_preconditioning:
            message = f"{self.dense_optimizer.name} preconditions the gradient itself, by factors of another kind"
            raise invalid("preconditioner", message, "null, or another dense_optimizer.name")
        if self.preconditioner is not None and self.model.architecture in NORMALIZED:
            message = f"has factors of linear layers, and {self.model.architecture} has layer normalization too"
            others = ", ".join(name for name in SETTINGS if name not in NORMALIZED)
            raise invalid("preconditioner", message, f"null, or model.architecture {others}")
        if self.preconditioner is not None and self.data.is_raw and self.data.raw_schema.target_numbers:
            raise invalid("preconditioner", NOT_PRECONDITIONED, "null, or data.schema without sequences")
        return self

    @model_validator(mode="after")
    def _check_attention(self) -> Self:
        # Packed rows say themselves whether they have sequences.
        has_sequences = self.data.format == "packed" or (self.data.is_raw and self.data.raw_schema.target_numbers)
        if self.model.attention is not None and not has_sequences:
            raise invalid("model.attention", *NO_SEQUENCES)
        return self

    @model_validator(mode="after")
    def _check_tasks(self) -> Self:
        tasks, sharing = self.model.tasks or [], self.model.task_sharing
        if len(tasks) < 2:
            return self
        if self.preconditioner is not None and sharing is not None and sharing.loss_weighting == "uncertainty":
            message = "has factors of linear layers, and uncertainties of tasks are no such layer"
            raise invalid("preconditioner", message, 'null, or model.task_sharing.loss_weighting "fixed"')
        check_labels(tasks, self.data, self.run)
        return self

    @model_validator(mode="after")
    def _check_gain(self) -> Self:
        for field, value in (("preconditioner", self.preconditioner), ("pruning", self.pruning)):
            if self.dense_optimizer.schedule.follows_gain and value is not None:
                message = "changes the gradient, by the noise of which adascale sets the rate"
                raise invalid(field, message, "null, or another dense_optimizer.schedule.scaling")
        return self

    @model_validator(mode="after")
    def _check_pruning(self) -> Self:
        if self.pruning is not None:
            check_pruning(self.pruning, self.run, is_growing=self.batch.growth is not None)
        return self

    @model_validator(mode="after")
    def _check_dense_averaging(self) -> Self:
        if self.dense_averaging is not None:
            check_dense_averaging(
                self.dense_averaging,
                self.dense_optimizer,
                of_sum={
                    "variance_reduction": self.variance_reduction,
                    "batch.growth": self.batch.growth,
                    "preconditioner": self.preconditioner,
                    "moments": self.moments,
                },
                of_shared={"averaging": self.averaging, "pruning": self.pruning},
            )
        return self

    @model_validator(mode="after")
    def _check_rewarmup(self) -> Self:
        if self.batch.rewarmup and self.dense_optimizer.schedule.autowu is not None:
            message = "finds one rate for the whole run, and every size of batch.rewarmup has its own"
            raise invalid("dense_optimizer.schedule.autowu", message, "null, or batch.rewarmup false")
        if self.batch.rewarmup and self.dense_optimizer.schedule.follows_gain:
            message = "adascale counts steps of the whole run, and every size of batch.rewarmup has its own schedule"
            raise invalid("dense_optimizer.schedule.scaling", message, "another scaling, or batch.rewarmup false")
        return self

    @model_validator(mode="after")
    def _check_averaging(self) -> Self:
        if self.averaging is not None and self.resources.gpus_per_worker:
            message = "weights are averaged in the memory of CPUs, and these ranks have GPUs"
            raise invalid("averaging", message, "null, or resources.gpus_per_worker 0")
        if self.averaging is not None and self.dense_optimizer.is_averaging:
            message = f"{self.dense_optimizer.name} averages the dense parameters itself"
            raise invalid("averaging", message, "null, or another dense_optimizer.name")
        reduction = self.variance_reduction
        if reduction is not None and reduction.scale == "update" and self.dense_optimizer.is_averaging:
            name = self.dense_optimizer.name
            message = f"{name} interpolates the weights after its update, so that no factor on them would last"
            raise invalid("variance_reduction.scale", message, '"gradient", or another dense_optimizer.name')
        return self

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        counting = self.table_optimizer.counting_field
        if counting is None:
            return self
        field, off = f"table_optimizer.{counting[0]}", counting[1]
        if self.resources.gpus_per_worker:
            message = "the kernels of GPUs do not count how often a row occurs"
            raise invalid(field, message, f"{off}, or resources.gpus_per_worker 0")
        if self.sharding.transport == "torchrec":
            message = "the kernels of the transport torchrec do not count how often a row occurs"
            raise invalid(field, message, f'{off}, or sharding.transport "auto"')
        return self

    @model_validator(mode="after")
    def _check_reset(self) -> Self:
        if self.run.reset_tables_each_epoch and self.resources.gpus_per_worker:
            message = "tables are drawn anew in the memory of CPUs, and these ranks have GPUs"
            raise invalid("run.reset_tables_each_epoch", message, "false, or resources.gpus_per_worker 0")
        return self

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.run.group_by is None or not self.data.is_raw:
            return self
        vocabulary = self.data.vocabulary
        single = [column for column in self.data.raw_schema.categorical if not column.multi_hot]
        names = [column.feature for column in single if vocabulary.count_ids_per_value(column) == 1]
        if self.run.group_by not in names:
            message = f"{self.run.group_by!r} is no categorical feature of one value a row"
            if self.run.group_by in (column.feature for column in single):
                rule = "num_hashes" if isinstance(vocabulary.get_rule(self.run.group_by), Hashing) else "num_remainders"
                message = f"values of {self.run.group_by!r} have several ids each, by data.vocabulary.{rule}"
            raise invalid("run.group_by", message, " or ".join(["null", *names[:20]]))
        return self

    @model_validator(mode="after")
    def _check_moments(self) -> Self:
        moments, world_size = self.moments, self.resources.world_size
        if moments is None:
            for is_used, need in (
                (self.variance_reduction is not None, "variance_reduction needs moments"),
                (self.batch.growth is not None, "batch.growth needs the noise scale"),
                (self.dense_optimizer.schedule.follows_gain, "dense_optimizer.schedule.scaling adascale needs moments"),
            ):
                if is_used:
                    valid = "leave it out for the defaults" if self.augmentation is None else '{"estimator": "groups"}'
                    raise invalid("moments", f"is null, but {need}", valid)
            return self
        if moments.estimator != "groups":
            return self
        if moments.num_groups % world_size:
            above = -(-moments.num_groups // world_size) * world_size
            nearest = [size for size in (above - world_size, above) if 2 <= size <= MAX_GROUPS]
            message = f"{moments.num_groups} is not a multiple of {world_size} ranks"
            raise invalid("moments.num_groups", message, " or ".join(str(size) for size in nearest))
        sizes = self.batch.list_sizes()
        if sizes and moments.num_groups > sizes[0][1]:
            message = f"{moments.num_groups} groups are more than the {sizes[0][1]} samples of a batch"
            raise invalid("moments.num_groups", message, f"at most {sizes[0][1]}")
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        synthetic, resources = self.data.synthetic, self.resources
        if synthetic is None:
            return self
        max_rows = resources.memory // (ORDER_BYTES_PER_ROW * resources.workers_per_node)
        if synthetic.num_rows > max_rows:
            raise invalid(
                "data.synthetic.num_rows",
                f"{synthetic.num_rows:,} rows need more than resources.memory for their row numbers alone",
                f"up to {max_rows:,}, or more memory",
            )
        return self


class JobConfig(JobSpec):
    """A training job in which nothing is left to decide: the document of a run."""

    model: ModelConfig = ModelConfig()  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    batch: BatchConfig = BatchConfig()  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    dense_optimizer: DenseOptimizerConfig = DenseOptimizerConfig()  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    table_optimizer: TableOptimizerConfig = TableOptimizerConfig()  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    run: RunConfig = RunConfig()  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen

    def get_moments_every(self, global_size: int) -> int:
        """Return the steps from one measurement of moments to the next at a batch of `global_size` samples.

        1 if nothing is measured.
        """
        if self.moments is None:
            return 1
        is_used = self.variance_reduction is not None or self.dense_optimizer.schedule.follows_gain
        return self.moments.choose_every(global_size, is_for_reduction=is_used)


def parse_job(document: Mapping[str, Any]) -> JobSpec:
    """Parse and validate a job document that a user has sent; those that were stored are read as they are.

    Raises ConfigError, which names every field at fault and what would be valid.
    """
    spec = parse_document(JobSpec, begin_record(document))
    if isinstance(spec.resources.nodes, NodeRange):
        _check_fewest_machines(document, spec.resources.nodes)
    return spec


def _check_fewest_machines(document: Mapping[str, Any], nodes: NodeRange) -> None:
    """Raise ConfigError if a document is valid with the largest number of machines, but not with the smallest."""
    resources = document["resources"]
    fewest = {**document, "resources": {**resources, "nodes": {**resources["nodes"], "present": nodes.min}}}
    try:
        parse_document(JobSpec, begin_record(fewest))
    except ConfigError as error:
        machines = format_count(nodes.min, "machine")
        faults = [replace(fault, message=f"with {machines}: {fault.message}") for fault in error.errors]
        raise ConfigError(faults) from None
