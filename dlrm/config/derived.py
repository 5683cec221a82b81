"""Numbers that are derived from a job document alone, each with its reason."""

import math
from collections.abc import Sequence
from itertools import pairwise

from pydantic import Field

from dlrm.config.base import Config
from dlrm.config.batch import BatchConfig, shorten_sizes
from dlrm.config.curves import MAX_WARMUP
from dlrm.config.decide import BETTER_WITHOUT, UNKNOWN_ROWS, DataFacts, Decision, decide
from dlrm.config.job import JobConfig, JobSpec
from dlrm.config.optimizers import DenseOptimizerConfig, TableOptimizerConfig, compute_peak_rate, get_noise_rule
from dlrm.config.presets import BATCH_FIELD, PRESETS, RATE_FIELD
from dlrm.config.table_dims import is_open as are_dims_open

CHUNK_BEFORE_PLAN = {0: 2048, 1: 65_536}
"""Largest number of samples in an automatic chunk that is decided without a plan, by `gpus_per_worker`: on a CPU the
activations of 2,048 samples stay in a core's cache; on a GPU a plan may have room for more."""
CHUNK_POSITIONS, MIN_CHUNK = 32_768, 16
"""Largest number of positions of sequences in an automatic chunk on a CPU, but for the smallest chunk: attention over
1,000 positions takes half as long at 32 samples as at 1,024."""

WARMUP_CAPPED, RATE_JUMPS = "warmup_capped", "rate_jumps"
"""Names of the events for a warm-up shorter than its scaling asks for, and for a learning rate that jumps where the
batch grows."""
PRESET_UNUSED, PRESET_RATE = "preset_unused", "preset_rate"
"""Names of the events for a preset that fills nothing, and for a preset's learning rate with another model."""
MAX_JUMP = 1.5
"""Largest factor by which a learning rate rises at once without a warning; sqrt has less for a doubled batch."""


class DerivedNumber(Config):
    """One derived number, as printed and stored."""

    name: str
    value: int | float
    unit: str
    reason: str


class DerivedWarning(Config):
    """A warning about a number for the user who starts the run; the trainer reports it as an event."""

    name: str
    """Name of the event."""
    message: str


class ResolvedJob(Config):
    """A job document with every open number decided: a launcher writes it to `spec.json`, and a worker reads it."""

    job: JobConfig
    asked: JobSpec | None = None
    """Document as submitted, if the rows have yet to decide some fields: until then `job` has them as for unknown rows.
    null if nothing is left to decide."""
    decisions: list[Decision] = Field(default=[])
    """Values of the fields that the document left open, with their reasons; empty until the rows are known."""
    data_roots: list[str] | None = None
    """Directories that must contain the data, as real paths; null: the user runs the job and may read any file."""
    data_cache: str | None = None
    """Directory of prepared data that jobs share; null: the run directory keeps its own prepared data."""
    chunk_size: int
    """Number of samples in a chunk on one rank (c)."""
    moments_every: int = 1
    """Number of steps from one measurement of moments to the next, at a batch of `global_size` samples."""
    gradient_scale: float
    """Scale S of the gradient of the tables, a power of two. Smaller batches than `global_size`, where the batch grows
    or an epoch is shorter, have it in proportion to their rows, so that Adagrad's sums count every row the same."""
    derived: list[DerivedNumber]
    warnings: list[DerivedWarning] = Field(default=[])

    @property
    def share_size(self) -> int:
        """Number of samples of one step on one rank (b)."""
        return self.job.batch.global_size // self.job.resources.world_size

    @property
    def sample_scale(self) -> float:
        """Scale of a sample's own gradient in the gradient of the tables: S / B, in batches of any size."""
        return self.gradient_scale / self.job.batch.global_size

    @property
    def is_chunk_planned(self) -> bool:
        """Whether a plan decides the chunk, by the memory of GPUs: `chunk_size` is then what tables are placed with."""
        return self.job.batch.chunk_size == "auto" and self.job.resources.gpus_per_worker > 0

    def with_planned_chunk(self, chunk_size: int) -> "ResolvedJob":
        """Return the job with the chunk of its plan; unchanged if a plan does not decide it."""
        if not self.is_chunk_planned:
            return self
        planned = self.model_copy(update={"chunk_size": chunk_size})
        update = {"value": chunk_size, "reason": planned.reason_of_planned_chunk}
        derived = [
            number.model_copy(update=update) if number.name == "chunk_size" else number for number in self.derived
        ]
        return planned.model_copy(update={"derived": derived})

    @property
    def reason_of_planned_chunk(self) -> str:
        """Reason for the chunk if a plan has decided it; else empty."""
        if not self.is_chunk_planned:
            return ""
        if self.chunk_size >= self.share_size:
            return "the whole share, for which the plan has room on a GPU"
        return "the share, halved until it leaves room on a GPU"

    @property
    def table_initial_state(self) -> float:
        """Value at which the sums of squares of the tables' rows begin, in squares of their gradient."""
        return _compute_table_initial_state(self.job, self.gradient_scale)


def resolve(
    document: JobSpec,
    data_roots: list[str] | None = None,
    data_cache: str | None = None,
    facts: DataFacts | None = None,
) -> ResolvedJob:
    """Decide every number that the document leaves open.

    facts: about the rows. None if they are not known yet: fields with "auto" then have the values for unknown rows
    until `resolve_with_rows` decides them, and nothing that depends on them is listed.
    """
    job, decisions = decide(document, facts)
    is_open = _has_open_fields(document, decisions, facts)
    share_size = job.batch.global_size // job.resources.world_size
    chunk_size, chunk_reason = _derive_chunk_size(job, share_size)
    moments_every, every_reason = _derive_moments_every(job)
    gradient_scale = DerivedNumber(
        name="gradient_scale",
        value=float(2 ** round(math.log2(job.batch.global_size))),
        unit="",
        reason="power of two nearest the batch: keeps table gradients in fp16's range and above Adagrad's eps",
    )
    ranks = DerivedNumber(
        name="world_size", value=job.resources.world_size, unit="ranks", reason="nodes x workers_per_node"
    )
    derived = [
        *_list_decided_numbers(decisions),
        *_derive_first_size(job.batch),
        ranks,
        DerivedNumber(name="share_size", value=share_size, unit="samples", reason="global_size / world_size"),
        DerivedNumber(name="chunk_size", value=chunk_size, unit="samples", reason=chunk_reason),
        gradient_scale,
        *_derive_table_initial_state(job, gradient_scale.value),
    ]
    if job.moments is not None:
        derived.append(DerivedNumber(name="moments_every", value=moments_every, unit="steps", reason=every_reason))
    derived += _derive_schedule_numbers("dense", job.dense_optimizer, job.batch)
    derived += _derive_schedule_numbers("table", job.table_optimizer, job.batch)
    return ResolvedJob(
        job=job,
        asked=document if is_open else None,
        decisions=[] if is_open else decisions,
        data_roots=data_roots,
        data_cache=data_cache,
        chunk_size=chunk_size,
        moments_every=moments_every,
        gradient_scale=gradient_scale.value,
        derived=[ranks] if is_open else derived,
        warnings=[] if is_open else _list_warnings(job, decisions),
    )


def _has_open_fields(document: JobSpec, decisions: list[Decision], facts: DataFacts | None) -> bool:
    # The model that the job starts from is looked up together with the rows.
    waits_for_model = facts is None and document.run.warm_start is not None
    is_decided = isinstance(document, JobConfig)
    return (waits_for_model and not is_decided and are_dims_open(document.model.table_dims)) or any(
        decision.reason == UNKNOWN_ROWS or (waits_for_model and decision.field.startswith("model."))
        for decision in decisions
    )


def _list_warnings(job: JobConfig, decisions: Sequence[Decision]) -> list[DerivedWarning]:
    warnings = [*_list_preset_warnings(job), *_list_few_rows_warnings(job, decisions)]
    for name, optimizer in (("dense", job.dense_optimizer), ("table", job.table_optimizer)):
        warnings += _list_schedule_warnings(name, optimizer, _get_longest_warming(job.batch))
        warnings += _list_jump_warnings(name, optimizer, job.batch)
    return warnings


def resolve_with_rows(resolved: ResolvedJob, facts: DataFacts) -> ResolvedJob:
    """Return the job with its open fields decided, now that the rows are known."""
    assert resolved.asked is not None, "something is left to decide"
    return resolve(resolved.asked, resolved.data_roots, resolved.data_cache, facts)


def resolve_for_nodes(resolved: ResolvedJob, num_nodes: int) -> ResolvedJob:
    """Return the job of an attempt that begins with `num_nodes` of a range of machines: same batch, rates and order."""
    document = resolved.asked or resolved.job
    changed = document.model_copy(update={"resources": document.resources.with_present(num_nodes)})
    now = resolve(changed, resolved.data_roots, resolved.data_cache)
    return now.model_copy(update={"decisions": resolved.decisions})


def _list_decided_numbers(decisions: Sequence[Decision]) -> list[DerivedNumber]:
    return [
        DerivedNumber(name=decision.field, value=decision.value, unit="", reason=decision.reason)
        for decision in decisions
        if isinstance(decision.value, int | float)
    ]


def _compute_table_initial_state(job: JobConfig, gradient_scale: float) -> float:
    """Convert `table_optimizer.initial_accumulator` from squared gradients of one sample to those that tables get.

    Tables get S times the gradient of the mean over B samples, in which one sample has its own gradient times S / B,
    and as much of it in smaller batches.
    """
    return job.table_optimizer.initial_accumulator * (gradient_scale / job.batch.global_size) ** 2


def _derive_table_initial_state(job: JobConfig, gradient_scale: float) -> list[DerivedNumber]:
    """Return the value at which sums of squares of the tables begin; nothing if it is 0."""
    initial = job.table_optimizer.initial_accumulator
    if not initial:
        return []
    reason = f"initial_accumulator {initial:g} x (gradient_scale / global_size)^2: in squares of what tables get"
    value = _compute_table_initial_state(job, gradient_scale)
    return [DerivedNumber(name="table_initial_state", value=value, unit="", reason=reason)]


def _derive_chunk_size(job: JobConfig, share_size: int) -> tuple[int, str]:
    """Decide the samples of a chunk, and say why."""
    if job.batch.chunk_size != "auto":
        return job.batch.chunk_size, "set in the job"
    chunk_size = min(share_size, CHUNK_BEFORE_PLAN[job.resources.gpus_per_worker])
    if job.resources.gpus_per_worker:
        return chunk_size, "until a plan decides, by the memory of the GPU: the whole share, or a part of it"
    if job.data.is_raw and (num_positions := job.data.raw_schema.num_positions):
        chunk_size = min(chunk_size, max(MIN_CHUNK, CHUNK_POSITIONS // num_positions))
    return chunk_size, "the largest chunk whose activations stay in a core's cache, or the whole share"


def _derive_moments_every(job: JobConfig) -> tuple[int, str]:
    """Decide the steps from one measurement to the next, and say why."""
    global_size = job.batch.global_size
    every = job.get_moments_every(global_size)
    if job.moments is None:
        return every, "moments are not measured"
    if job.moments.every != "auto":
        return every, "set in the job"
    if job.dense_optimizer.schedule.follows_gain:
        return every, "the rate follows the noise of every step"
    if job.variance_reduction is not None:
        return every, "variance reduction needs the moments of every step"
    reason = f"once in {every * global_size:,} samples: they are only monitored"
    first = job.get_moments_every(job.batch.first_size)
    return every, reason if first == every else f"{reason}; {first} at {job.batch.first_size} samples"


def _derive_first_size(batch: BatchConfig) -> list[DerivedNumber]:
    """Return the batch of the first step and how it grows; nothing if it does not grow."""
    if not batch.is_growing:
        return []
    if (growth := batch.growth) is not None:
        reason = (
            f"batch.growth: doubles, up to {batch.global_size}, where the noise scale exceeds {growth.noise_factor:g} "
            f"times the batch after a share of {growth.check_every_fraction:g} of the samples"
        )
    else:
        ends = [f"{stage.global_size} until {stage.until_fraction:g} of the samples" for stage in batch.schedule]
        reason = f"batch.schedule: {', '.join(shorten_sizes(ends))}, then {batch.global_size}"
    return [DerivedNumber(name="first_global_size", value=batch.first_size, unit="samples", reason=reason)]


def _derive_schedule_numbers(
    name: str, optimizer: DenseOptimizerConfig | TableOptimizerConfig, batch: BatchConfig
) -> list[DerivedNumber]:
    schedule, first, last = optimizer.schedule, batch.first_size, batch.global_size
    warming, unit = _get_longest_warming(batch), "of each size" if batch.rewarmup else "of the run"
    if schedule.autowu is not None:
        reason = "schedule.autowu: at most; the rate at which the training loss is least"
        return [
            DerivedNumber(name=f"{name}_peak_learning_rate", value=schedule.autowu.last_rate, unit="", reason=reason)
        ]
    length = f"warmup_fraction {schedule.warmup_fraction:g}"
    if schedule.scaling == "legw":
        length += f" at {schedule.base_batch} samples, scaling legw, to {warming}"
    if _is_capped(optimizer, warming):
        length += f": {schedule.requested_warmup(warming):.3g}, capped at {MAX_WARMUP:g}"
    scaling = f"scaling {schedule.scaling}"
    if schedule.noise_scale is not None:
        scaling += f" ({get_noise_rule(optimizer.name)} far below noise_scale {schedule.noise_scale:g})"
    if schedule.follows_gain:
        scaling += f" ({get_noise_rule(optimizer.name)} at most, by the gain of each step)"
    peak = f"learning_rate at {schedule.base_batch} samples, {scaling}, to {last}"
    if first != last:
        peak += f"; {compute_peak_rate(optimizer, first):.6g} at {first}"
    return [
        DerivedNumber(
            name=f"{name}_peak_learning_rate",
            value=compute_peak_rate(optimizer, last),
            unit="",
            reason=peak,
        ),
        DerivedNumber(name=f"{name}_warmup_fraction", value=schedule.warmup(warming), unit=unit, reason=length),
    ]


def _list_preset_warnings(job: JobConfig) -> list[DerivedWarning]:
    """Warn where a preset changes nothing, or its rate is for another model, by the record of what it has filled."""
    if job.preset is None or job.filled_by_preset is None:
        return []
    chosen_with = PRESETS[job.preset].architecture
    if RATE_FIELD in job.filled_by_preset and job.model.architecture != chosen_with:
        message = (
            f"preset: the {RATE_FIELD} of {job.preset} was chosen with {chosen_with}; with {job.model.architecture} "
            f"and small first batches a model learned nothing at it. Set {RATE_FIELD}, such as 0.0015"
        )
        return [DerivedWarning(name=PRESET_RATE, message=message)]
    if job.filled_by_preset:
        return []
    message = (
        f"preset: {job.preset} fills nothing, since the document states all that it would fill, or other optimizers; "
        "leave out what should be its choice, such as batch.global_size or dense_optimizer.learning_rate"
    )
    return [DerivedWarning(name=PRESET_UNUSED, message=message)]


def _list_few_rows_warnings(job: JobConfig, decisions: Sequence[Decision]) -> list[DerivedWarning]:
    """Warn where a preset has chosen the smallest batch, since the rows are too few for it."""
    return [
        DerivedWarning(
            name=PRESET_UNUSED, message=f"preset: {job.preset} chose batch.global_size {decision.value} {reason}"
        )
        for decision in decisions
        if decision.field == BATCH_FIELD and (reason := decision.reason.partition(": ")[2]).endswith(BETTER_WITHOUT)
    ]


def _list_schedule_warnings(
    name: str, optimizer: DenseOptimizerConfig | TableOptimizerConfig, global_size: int
) -> list[DerivedWarning]:
    """Warn where the warm-up at batches of `global_size` samples is cut."""
    if not _is_capped(optimizer, global_size):
        return []
    schedule = optimizer.schedule
    ratio = global_size / schedule.base_batch
    message = (
        f"{name}_optimizer.schedule: scaling legw makes the warm-up {ratio:.3g} times as long, "
        f"{schedule.requested_warmup(global_size):.3g} of the run; it is capped at {MAX_WARMUP:g}. To avoid "
        f"the cap, set a warmup_fraction of up to {MAX_WARMUP / ratio:.3g}, or a smaller batch.global_size"
    )
    return [DerivedWarning(name=WARMUP_CAPPED, message=message)]


def _list_jump_warnings(
    name: str, optimizer: DenseOptimizerConfig | TableOptimizerConfig, batch: BatchConfig
) -> list[DerivedWarning]:
    """Warn where the learning rate rises at once, and far, where the batch grows."""
    if batch.rewarmup or optimizer.schedule.follows_gain:
        return []
    sizes = [size for _, size in batch.list_sizes()]
    if batch.growth is not None:
        sizes[1:] = [min(2 * batch.growth.start_size, batch.global_size)]
    rates = [compute_peak_rate(optimizer, size) for size in sizes]
    jump = max((after / before for before, after in pairwise(rates)), default=1.0)
    if jump <= MAX_JUMP:
        return []
    # Where the batch doubles, linear makes the jump 2, and sqrt less than is warned of.
    other = " or sqrt" if jump <= 2.0 else ', or let the batch grow in smaller steps, as with batch.schedule = "auto"'
    message = (
        f"{name}_optimizer.schedule: scaling {optimizer.schedule.scaling} raises the learning rate {jump:.3g} times at "
        f"once where the batch grows, which can throw a model far back; set scaling none{other}"
    )
    return [DerivedWarning(name=RATE_JUMPS, message=message)]


def _get_longest_warming(batch: BatchConfig) -> int:
    """Return the size at which the longest warm-up of a run begins: the last one if every size has its own."""
    return batch.global_size if batch.rewarmup else batch.first_size


def _is_capped(optimizer: DenseOptimizerConfig | TableOptimizerConfig, global_size: int) -> bool:
    return optimizer.schedule.warmup(global_size) < optimizer.schedule.requested_warmup(global_size)
