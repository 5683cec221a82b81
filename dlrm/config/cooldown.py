"""Cooldown of a run from a checkpoint: the job of the shorter or longer run that has the same steps up to there."""

import math
from collections.abc import Sequence

from dlrm.config.errors import ConfigError, FieldError, parse_document
from dlrm.config.job import JobConfig, JobSpec
from dlrm.config.optimizers import DenseOptimizerConfig, TableOptimizerConfig
from dlrm.config.schedule import ScheduleConfig
from dlrm.config.stages import BatchStage, count_run_rows, list_stages

MAX_FRACTION = 1.0
"""Largest length of a cooldown as a multiple of the samples before it: wsd falls over half of a run at most."""
_ROUNDING = 1e-12
"""Share by which the cooldown is shortened, so that the step before it has exactly the peak rate."""


def cool_down(job: JobConfig, num_rows: int, num_samples: int, fraction: float) -> JobConfig:
    """Return the job of a wsd run that cools down after `num_samples` of `job` (Hägele et al. 2024, arXiv 2405.18392).

    Both runs have the same batches and rates up to there, to the bit, if a whole batch ends there. The dense rate then
    falls linearly to zero. The rate of the tables does so too if its decay is wsd; a constant one stays constant, as in
    any run. The last model is kept. num_rows: training rows of an epoch. fraction: samples of the cooldown as a
    multiple of `num_samples`, above 0, at most MAX_FRACTION. Raises ConfigError if no such run exists.
    """
    stages = list_stages(job, num_rows)
    dense, tables = job.dense_optimizer, job.table_optimizer
    num_run_rows = count_run_rows(num_rows, job.run.epochs)
    new_rows = num_samples + max(1, round(fraction * num_samples))
    if faults := _list_faults(job, stages, num_run_rows, num_samples, new_rows):
        raise ConfigError(faults)
    document = job.model_dump(mode="json")
    document["run"] |= {"epochs": new_rows / num_rows, "keep_model": "last", "patience": None, "target_auc": None}
    document["batch"]["schedule"] = [
        # The middle of the batch that ends the stage, so that rounding does not move its end.
        {"until_fraction": (stage.end_row - (stage.full_rows - 1) / 2) / new_rows, "global_size": stage.global_size}
        for stage in stages[:-1]
    ]
    for name, optimizer in (("dense_optimizer", dense), ("table_optimizer", tables)):
        document[name]["schedule"] |= {
            "warmup_fraction": _stretch_warmup(optimizer.schedule, stages[0], num_run_rows, new_rows)
        }
        if optimizer is dense or optimizer.schedule.decay == "wsd":
            cooldown = (new_rows - num_samples) / new_rows * (1.0 - _ROUNDING)
            document[name]["schedule"] |= {"decay": "wsd", "cooldown_fraction": cooldown}
    ratio = num_run_rows / new_rows
    if dense.schedule.autowu is not None:
        document["dense_optimizer"]["schedule"]["autowu"]["max_fraction"] *= ratio
    if job.pruning is not None:
        for field in ("from_fraction", "until_fraction"):
            document["pruning"][field] *= ratio
    if job.averaging is not None:
        document["averaging"]["half_life_fraction"] *= ratio
    return parse_document(JobConfig, document)


def list_averaging_faults(job: JobSpec) -> list[FieldError]:
    """List the fault of a dense optimizer that needs no cooldown; nothing if it is sound."""
    if not job.dense_optimizer.is_averaging:
        return []
    message = f"{job.dense_optimizer.name} averages the weights in the place of a cooldown"
    return [FieldError("dense_optimizer.name", message, "another optimizer")]


def _stretch_warmup(schedule: ScheduleConfig, first: BatchStage, num_run_rows: int, new_rows: int) -> float:
    """Return the `warmup_fraction` of as many warm-up steps in a run of `new_rows`."""
    num_steps = schedule.count_warmup_steps(num_run_rows / first.full_rows, first.global_size)
    if num_steps == 0:
        return 0.0
    lengthening = schedule.requested_warmup(first.global_size) / schedule.warmup_fraction
    return num_steps / round(new_rows / first.full_rows) / lengthening


def _list_faults(
    job: JobConfig, stages: Sequence[BatchStage], num_run_rows: int, num_samples: int, new_rows: int
) -> list[FieldError]:
    """List what keeps a run from a cooldown after `num_samples`, by field."""
    faults: list[FieldError] = []
    if job.batch.growth is not None:
        faults.append(FieldError("batch.growth", "grows the batch by shares of the run's length", "null"))
    elif job.batch.rewarmup:
        faults.append(FieldError("batch.rewarmup", "lets the rate fall at the end of every size", "false"))
    elif num_samples < stages[-1].start_row:
        message = f"the batch still grows after {num_samples:,} samples"
        faults.append(FieldError("batch.schedule", message, f"a checkpoint after {stages[-1].start_row:,} samples"))
    faults += list_averaging_faults(job)
    if job.data.order == "time":
        faults.append(FieldError("data.order", "has one length, that of the log", '"shuffled"'))
    if job.pruning is not None and job.pruning.until_fraction * num_run_rows > num_samples:
        pruned_after = math.ceil(job.pruning.until_fraction * num_run_rows)
        message = f"elements are still being pruned after {num_samples:,} samples"
        faults.append(FieldError("pruning.until_fraction", message, f"a checkpoint after {pruned_after:,} samples"))
    if job.averaging is not None and job.averaging.half_life_fraction * num_run_rows > new_rows:
        half_life = math.ceil(job.averaging.half_life_fraction * num_run_rows)
        message = f"is {half_life:,} samples, more than the {new_rows:,} of the run with its cooldown"
        faults.append(FieldError("averaging.half_life_fraction", message, "a later checkpoint, or a longer cooldown"))
    if job.dense_optimizer.schedule.follows_gain:
        message = "adascale reads the schedule by the gains of a run of this length"
        faults.append(FieldError("dense_optimizer.schedule.scaling", message, "a run with another scaling"))
    for name, optimizer in (("dense_optimizer", job.dense_optimizer), ("table_optimizer", job.table_optimizer)):
        fault = _find_rate_fault(f"{name}.schedule", optimizer, stages[0], num_run_rows, num_samples, new_rows)
        faults += [fault] if fault is not None else []
    return faults


def _find_rate_fault(
    field: str,
    optimizer: DenseOptimizerConfig | TableOptimizerConfig,
    first: BatchStage,
    num_run_rows: int,
    num_samples: int,
    new_rows: int,
) -> FieldError | None:
    """Return the fault of a rate away from its peak after `num_samples`, or with too long a warm-up; None if sound."""
    schedule = optimizer.schedule
    if schedule.decay not in ("constant", "wsd"):
        message = f'decay "{schedule.decay}" lets the rate fall from the warm-up on'
        return FieldError(f"{field}.decay", message, 'a run with decay "constant" or "wsd"')
    peak_until = num_run_rows * (1.0 - (schedule.cooldown_fraction or 0.0))
    if schedule.decay == "wsd" and num_samples > peak_until + 0.5:
        message = f"the rate has fallen already after {num_samples:,} samples"
        return FieldError(f"{field}.cooldown_fraction", message, f"a checkpoint of at most {peak_until:,.0f} samples")
    num_steps = schedule.count_warmup_steps(num_run_rows / first.full_rows, first.global_size)
    autowu = schedule.autowu
    num_warmup = num_steps * first.full_rows if autowu is None else autowu.max_fraction * num_run_rows
    if num_warmup > min(num_samples, new_rows / 2):
        message = f"the warm-up takes {num_warmup:,.0f} samples"
        valid = f"a checkpoint after {num_warmup * 2:,.0f} samples"
        return FieldError(f"{field}.{'warmup_fraction' if autowu is None else 'autowu'}", message, valid)
    return None
