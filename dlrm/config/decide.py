"""Decides the fields of a job document that say "auto", each with its reason.

The rules were chosen by experiments on seven data sets (benchmarks/experiments.md). If the number of rows is not
known, the decisions are those for many rows, which is what an unknown log most likely has.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

from dlrm.config.base import Config
from dlrm.config.batch import MAX_BATCH, find_unit, list_growing_sizes, list_mixed_sizes, shorten_sizes
from dlrm.config.data import DataConfig
from dlrm.config.errors import ConfigError, FieldError, parse_document
from dlrm.config.job import JobConfig, JobSpec
from dlrm.config.messages import format_count, format_epochs
from dlrm.config.model import SETTING_FIELDS, ModelConfig, list_architectures_with
from dlrm.config.optimizers import DEFAULT_TABLE_RATE, get_default_rate, get_noise_rule
from dlrm.config.presets import (
    BATCH_FIELD,
    PRESETS,
    RATE_FIELD,
    SCHEDULE_FIELD,
    PresetName,
    get_min_steps,
    list_filled_values,
)
from dlrm.config.resources import ResourcesConfig
from dlrm.config.schedule import ScheduleConfig
from dlrm.config.stages import count_validation_rows
from dlrm.config.table_dims import is_open as are_dims_open

MIN_STEPS_OF_EPOCH = 256
"""Least number of steps of an epoch; a model hardly learns in fewer, and more of them make the run slower."""
MIN_BATCH, MAX_AUTO_BATCH = 256, 16_384
"""Bounds of the batch, in samples: smaller ones are slow, larger ones need learning rates that are tuned for them."""
EPOCHS_BY_ROWS = ((300_000, 5.0), (3_000_000, 3.0), (30_000_000, 2.0))
"""Numbers of epochs of a run with up to so many training rows; one epoch with more, where ids repeat often enough."""
MAX_DCN_ROWS = 3_000_000
"""Largest number of training rows for which the slower DCN-v2 is chosen."""
DIM_BY_ROWS = ((1_000_000, 16), (10_000_000, 32))
"""Embedding dimensions with up to so many training rows."""
MAX_DIM = 64
MAX_VALIDATION_FRACTION, MAX_VALIDATION_ROWS = 0.1, 50_000
"""Bounds of the validation rows: more of them choose no better."""
MAX_BLEND_ROWS = 300_000
"""Largest number of training rows for which a model is blended: it was measured with up to so many."""
PATIENCE = 5
"""Number of evaluations without a better model after which a run of automatic length ends."""
MAX_SMALL_BATCH = 4096
"""Largest batch for which the rates of ADAM_RATES were chosen."""
ADAM_RATES = {"adam": 0.0014, "adamw": 0.0014, "nadamw": 0.0014}
"""Rates at a batch of 2,048 samples, scaled with the root of the batch."""
RATES_BATCH = 2048
"""Batch that ADAM_RATES and the defaults of optimizers are for, in samples."""
BETTER_WITHOUT = "better without the preset"
"""End of the reason of a batch that a preset has chosen for too few rows."""
UNKNOWN_ROWS = "the number of training rows is not known yet"
"""Reason of a decision that the rows may change."""
HIDDEN_WIDTHS = [512, 256]
"""Widths of the layers of the bottom MLP before its last one."""


class DataFacts(Config):
    """Facts about the rows of a job that decisions rest on."""

    num_train_rows: int
    """Number of training rows."""
    source: ModelConfig | None = None
    """Model that the run starts from; both have the same dimensions. null without a warm start."""


def count_synthetic_train_rows(data: DataConfig) -> int:
    """Count the training rows of a synthetic log, up to the few by which a split by hash differs from its fraction."""
    assert data.synthetic is not None, "the rows are a synthetic log"
    return max(1, round(data.synthetic.num_rows * (1.0 - data.eval_fraction)))


class Decision(Config):
    """Value of one field of the document that was left to be decided."""

    field: str
    """Dotted path in the job document."""
    value: int | float | str | list[int] | None
    """Value that was decided."""
    reason: str
    """Reason in words."""

    def describe(self) -> str:
        """Describe the decision in one line, as in "run.patience = none: run.epochs is set"."""
        return f"{self.field} = {'none' if self.value is None else self.value}: {self.reason}"


def list_open_fields(job: JobSpec) -> list[str]:
    """List the fields of a document that say "auto", or "mixed", and are decided by the rows, as dotted paths."""
    return [field for field in _RULES if _get_value(job, field) in ("auto", "mixed")]


def decide(job: JobSpec, facts: DataFacts | None) -> tuple[JobConfig, list[Decision]]:
    """Decide the open fields of a document; what it states stays as it is.

    facts: None if the rows are not known yet. Returns the job, and the decisions in the order in which they are
    taken. Raises ConfigError if what the document states does not fit together with them.
    """
    document = job.model_dump(mode="json")
    decisions: list[Decision] = []
    for field in list_open_fields(job):
        value, reason = _RULES[field](document, facts)
        _set_decided(document, field, value)
        decisions.append(Decision(field=field, value=_describe_value(value), reason=reason))
    if facts is not None and facts.source is not None:
        if are_dims_open(job.model.table_dims):
            document["model"]["table_dims"] = facts.source.stated_dims
        if job.model.architecture == "auto":
            _keep_settings(document["model"], facts.source)
    decisions += [
        Decision(field=field, value=entry.value, reason=f"preset {job.preset}: {entry.reason}")
        for field, entry in list_filled_values(document).items()
    ]
    return parse_document(JobConfig, document), decisions


def keep_decisions(job: JobSpec, earlier: JobConfig) -> JobSpec:
    """Return the document with its open fields as they were decided for an earlier attempt of the same run.

    Raises ConfigError if what the document states does not fit together with them.
    """
    document, decided = job.model_dump(mode="json"), earlier.model_dump(mode="json")
    for field in list_open_fields(job):
        section, name = field.split(".")
        _set_decided(document, field, decided[section][name])
    if job.run.warm_start is not None and are_dims_open(job.model.table_dims):
        document["model"]["table_dims"] = earlier.model.stated_dims
    if job.model.architecture == "auto":
        _keep_settings(document["model"], earlier.model)
    return parse_document(JobSpec, document)


def choose_batch(num_rows: float, min_steps: int, max_batch: int) -> int:
    """Choose the largest batch, MIN_BATCH times a power of two, that makes at least `min_steps` of so many rows."""
    size = MIN_BATCH
    while size < max_batch and num_rows >= 2 * size * min_steps:
        size *= 2
    return size


def get_min_large_steps(global_size: int, num_run_rows: float) -> int:
    """Return the least steps of a run with one batch above any that is chosen without a preset.

    0 for smaller batches, and if the rows cannot make so many steps.
    """
    least = get_min_steps("large_batch", is_growing=True)
    return least if global_size > MAX_AUTO_BATCH and least <= num_run_rows / MIN_BATCH else 0


def get_auto_dim(num_train_rows: int) -> int:
    """Return the embedding dimension for so many training rows."""
    return next((dim for rows, dim in DIM_BY_ROWS if num_train_rows <= rows), MAX_DIM)


def _keep_settings(model: dict[str, Any], source: ModelConfig) -> None:
    """Give the fields of the architecture that the document leaves open the source's values."""
    for field in SETTING_FIELDS:
        if model[field] is None:
            model[field] = getattr(source, field)


def _decide_architecture(document: dict[str, Any], facts: DataFacts | None) -> tuple[str, str]:
    preset: PresetName | None = document["preset"]
    if facts is not None and facts.source is not None:
        return facts.source.architecture, "that of the model that the run starts from"
    if stated := [field for field in SETTING_FIELDS if document["model"][field] is not None]:
        return list_architectures_with(stated[0])[0], f"{stated[0]} is set"
    if preset is not None:
        return PRESETS[preset].architecture, f"preset {preset}: its other values were chosen with it"
    if facts is None:
        return "dlrm", UNKNOWN_ROWS
    if facts.num_train_rows <= MAX_DCN_ROWS:
        return "dcn_v2", f"predicts better from up to {MAX_DCN_ROWS:,} training rows"
    return "dlrm", f"is faster for {facts.num_train_rows:,} training rows"


def _decide_batch(document: dict[str, Any], facts: DataFacts | None) -> tuple[int, str]:
    preset: PresetName | None = document["preset"]
    if facts is None:
        size, reason = MAX_AUTO_BATCH if preset is None else PRESETS[preset].max_batch, UNKNOWN_ROWS
    elif preset is None:
        size = choose_batch(facts.num_train_rows, MIN_STEPS_OF_EPOCH, MAX_AUTO_BATCH)
        reason = f"for {facts.num_train_rows:,} training rows"
    else:
        size, reason = _choose_preset_batch(document, facts, preset)
    while (window_rows := document["data"]["window_rows"]) is not None and size > window_rows:
        size, reason = size // 2, "the rows of a window at most"
    whole = _make_whole(document, size)
    if facts is not None and whole != size:
        ranks = " or ".join(format_count(count, "rank") for count in _list_rank_counts(document))
        reason = f"{size:,} {reason}, raised for {ranks}, their chunks and the groups of moments"
    return whole, reason if facts is None or preset is None else f"preset {preset}: {reason}"


def _list_rank_counts(document: Mapping[str, Any]) -> list[int]:
    """List the smallest, the present and the largest number of ranks of a job; they differ for a range of machines."""
    resources = ResourcesConfig.model_validate(document["resources"])
    largest = resources.node_range[-1] * resources.workers_per_node
    return sorted({resources.least_world_size, resources.world_size, largest})


def _make_whole(document: Mapping[str, Any], size: int) -> int:
    """Raise a batch to a multiple of the ranks, a chunk on each, and a sample in each group of moments."""
    rank_counts = _list_rank_counts(document)
    chunk_size, moments = document["batch"]["chunk_size"], document["moments"]
    least = max(1 if chunk_size == "auto" else chunk_size * max(rank_counts), moments["num_groups"] if moments else 1)
    multiple = math.lcm(*rank_counts)
    if multiple > MAX_BATCH:
        counts = " and ".join(str(count) for count in rank_counts)
        message = f"no batch of up to {MAX_BATCH:,} samples is divisible by both {counts} ranks"
        raise ConfigError([FieldError("resources.nodes", message, "ends of which one divides the other")])
    return -(-max(size, least) // multiple) * multiple


def _decide_schedule(document: dict[str, Any], facts: DataFacts | None) -> tuple[list[dict[str, Any]], str]:  # noqa: ARG001
    """Decide how the batch grows, once its last size is decided.

    By that size alone, unless the ranks do not divide the unit of sizes. Those that then are the same, or the last one,
    count once.
    """
    last, moments = document["batch"]["global_size"], document["moments"]
    is_mixed = document["batch"]["schedule"] == "mixed"
    unit = math.lcm(find_unit(last), *_list_rank_counts(document))
    least = moments["num_groups"] if moments else 1
    listed = list_mixed_sizes(last) if is_mixed else list_growing_sizes(last)
    sizes = {-(-max(size, least) // unit) * unit: until for size, until in listed}
    stages = [{"until_fraction": until, "global_size": size} for size, until in sizes.items() if size < last]
    aim = "most samples in small batches" if is_mixed else "more steps while the gradient is large against its noise"
    reason = aim if stages else "too small for the ranks to grow"
    is_filled = SCHEDULE_FIELD in (document["filled_by_preset"] or ())
    return stages, f"preset {document['preset']}: {reason}" if is_filled else reason


def _choose_preset_batch(document: dict[str, Any], facts: DataFacts, preset: PresetName) -> tuple[int, str]:
    """Choose the batch by the steps of the run, or of an epoch where `run.epochs` is open, and say why."""
    run, batch = document["run"], document["batch"]
    min_steps = get_min_steps(preset, is_growing=bool(batch["schedule"] or batch["growth"]))
    fraction = run["validation_fraction"]
    if fraction == "auto":
        fraction, _ = _decide_validation(document, facts)
    num_held_out = count_validation_rows(facts.num_train_rows, fraction, document["data"]["split"])
    num_rows = facts.num_train_rows - num_held_out
    is_open = run["epochs"] == "auto"
    num_run_rows = num_rows * (1.0 if is_open else run["epochs"])
    size = choose_batch(num_run_rows, min_steps, PRESETS[preset].max_batch)
    rows = f"{'an epoch' if is_open else format_epochs(run['epochs'])} of {num_rows:,} training rows"
    if num_run_rows < size * min_steps:
        return size, f"for {rows}, too few for {min_steps:,} steps: {BETTER_WITHOUT}"
    return size, f"for at least {min_steps:,} steps in {rows}"


def _decide_epochs(document: dict[str, Any], facts: DataFacts | None) -> tuple[float, str]:  # noqa: ARG001
    if facts is None:
        return 1.0, UNKNOWN_ROWS
    num_rows = facts.num_train_rows
    num_epochs = next((epochs for rows, epochs in EPOCHS_BY_ROWS if num_rows <= rows), 1.0)
    return num_epochs, f"for {num_rows:,} training rows; the best model of the run is kept"


def _decide_validation(document: dict[str, Any], facts: DataFacts | None) -> tuple[float, str]:
    is_needed = document["run"]["recalibrate"] is not None
    if document["run"]["epochs"] != "auto" and not is_needed:
        return 0.0, "run.epochs is set: the evaluation rows choose the best model"
    if facts is None:
        return MAX_VALIDATION_FRACTION if is_needed else 0.0, UNKNOWN_ROWS
    # One row of every k is held out, so that the fraction is one over a whole number.
    period = max(1 / MAX_VALIDATION_FRACTION, facts.num_train_rows / MAX_VALIDATION_ROWS)
    num_rows = round(facts.num_train_rows / round(period))
    choosers = "1 row chooses" if num_rows == 1 else f"{num_rows:,} rows choose"
    return 1.0 / round(period), f"about {choosers} the best model"


def _decide_blend(document: dict[str, Any], facts: DataFacts | None) -> tuple[str, str]:
    run = document["run"]
    if run["epochs"] != "auto":
        return "none", "run.epochs is set"
    if run["target_auc"] is not None:
        return "none", "run.target_auc is set: the model that has reached it is kept as it is"
    if len(document["model"]["tasks"] or []) > 1:
        return "none", "model.tasks has further labels"
    if document["sharding"]["resident_memory"] is not None:
        return "none", "reads the whole model into memory, and sharding.resident_memory bounds it"
    if facts is None:
        return "none", UNKNOWN_ROWS
    if run["validation_fraction"] == 0.0:
        return "none", "there are no validation rows to choose by"
    if facts.num_train_rows > MAX_BLEND_ROWS:
        return "none", f"is for up to {MAX_BLEND_ROWS:,} training rows"
    return "logistic", "the validation rows choose the weights of both; it predicts better where effects add up"


def _decide_patience(document: dict[str, Any], facts: DataFacts | None) -> tuple[int | None, str]:  # noqa: ARG001
    if document["run"]["epochs"] != "auto":
        return None, "run.epochs is set"
    return PATIENCE, "run.epochs is auto"


def _decide_dim(document: dict[str, Any], facts: DataFacts | None) -> tuple[int, str]:
    bottom = document["model"]["bottom_mlp"]
    if facts is not None and facts.source is not None:
        return facts.source.embedding_dim, "that of the model that the run starts from"
    if bottom != "auto":
        return bottom[-1], "the last width of model.bottom_mlp"
    if facts is None:
        return MAX_DIM, UNKNOWN_ROWS
    return get_auto_dim(facts.num_train_rows), f"for {facts.num_train_rows:,} training rows"


def _decide_bottom(document: dict[str, Any], facts: DataFacts | None) -> tuple[list[int], str]:
    if facts is not None and facts.source is not None:
        return facts.source.bottom_mlp, "that of the model that the run starts from"
    return [*HIDDEN_WIDTHS, document["model"]["embedding_dim"]], "the last width is model.embedding_dim"


def _decide_dense_rate(document: dict[str, Any], facts: DataFacts | None) -> tuple[float, str]:  # noqa: ARG001
    name = document["dense_optimizer"]["name"]
    rate = get_default_rate(name)
    assert rate is not None, "every optimizer has a default rate"
    reason = f"the default of {name}"
    if name in ADAM_RATES and document["batch"]["global_size"] <= MAX_SMALL_BATCH:
        rate, reason = ADAM_RATES[name], f"the best of {name} at batches of up to {MAX_SMALL_BATCH:,}"
    schedule = ScheduleConfig.model_validate(document["dense_optimizer"]["schedule"])
    if schedule.base_batch != RATES_BATCH:
        rate /= schedule.scale(RATES_BATCH, get_noise_rule(name))
        reason += f", from {RATES_BATCH:,} samples to schedule.base_batch"
    return rate, reason


def _decide_table_rate(document: dict[str, Any], facts: DataFacts | None) -> tuple[float, str]:  # noqa: ARG001
    return DEFAULT_TABLE_RATE, f"the default of {document['table_optimizer']['name']}"


_RULES = {
    "model.architecture": _decide_architecture,
    # The embedding dimension before the MLP that ends in it.
    "model.embedding_dim": _decide_dim,
    "model.bottom_mlp": _decide_bottom,
    BATCH_FIELD: _decide_batch,
    SCHEDULE_FIELD: _decide_schedule,
    RATE_FIELD: _decide_dense_rate,
    "table_optimizer.learning_rate": _decide_table_rate,
    # Those that depend on whether run.epochs is set, before it is; the blend by the validation rows.
    "run.validation_fraction": _decide_validation,
    "run.blend": _decide_blend,
    "run.patience": _decide_patience,
    "run.epochs": _decide_epochs,
}


def _describe_value(value: Any) -> int | float | str | list[int] | None:
    """Return the value of a field in words for people: a schedule of the batch in words, None for an empty one."""
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    if not items or isinstance(items[0], int):
        return items or None
    sizes = [f"{stage['global_size']:,} until {stage['until_fraction']:g}" for stage in items]
    return ", ".join(shorten_sizes(sizes)) + " of the samples"


def _get_value(job: JobSpec, field: str) -> Any:
    section, name = field.split(".")
    return getattr(getattr(job, section), name)


def _set_decided(document: dict[str, Any], field: str, value: Any) -> None:
    section, name = field.split(".")
    document[section][name] = value
    record: list[str] | None = document["filled_by_preset"]
    if field == BATCH_FIELD and document["preset"] is not None and record is not None:
        record.append(field)
