"""Finds what a run has too little of, before it starts: steps, evaluation rows, or rows to let its batch grow.

Imports no torch and no numpy.
"""

import math
from dataclasses import dataclass

from dlrm.config import (
    BATCH_FIELD,
    MAX_BATCH,
    MIN_BATCH,
    BatchGrowth,
    BatchStage,
    JobConfig,
    choose_batch,
    count_run_rows,
    count_validation_rows,
    format_count,
    format_epochs,
    get_min_large_steps,
    get_min_steps,
    list_stages,
)
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS
from dlrm.metrics.standard_error import estimate_auc_standard_error
from dlrm.record import (
    AVERAGES_NOTHING,
    CANNOT_GROW,
    FEW_EVALUATION_ROWS,
    FEW_STEPS,
    MAX_STANDARD_ERROR,
    MIN_STEPS_OF_RUN,
    SHORT_EPOCH,
    EvaluationSource,
    QualityWarning,
)

TYPICAL_AUC = 0.75
"""AUC that is assumed before there is a model, to estimate the standard error."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of the rows of a job, counted or estimated."""

    num_train_rows: int
    """Number of training rows, validation rows included."""
    num_eval_rows: int | None = None
    """Number of evaluation rows; None if it is unknown."""
    label_rate: float | None = None
    """Share of the evaluation rows that are positive; None if it is unknown."""


def list_shortages(job: JobConfig, rows: RowCounts) -> list[QualityWarning]:
    """List what a run of `job` on these rows has too little of, each as an event and a sentence."""
    if job.data.follow is not None:
        # Further rows come.
        return []
    num_rows = _count_epoch_rows(job, rows)
    found = list_run_shortages(job, num_rows, _count_steps(job, num_rows))
    if rows.num_eval_rows is not None and rows.label_rate is not None:
        source = EvaluationSource.of_job(job.data.format, job.data.eval)
        few_rows = check_evaluation_rows(rows.num_eval_rows, rows.label_rate, source)
        found += [] if few_rows is None else [few_rows]
    return found


def list_run_shortages(job: JobConfig, num_rows: int, num_steps: int) -> list[QualityWarning]:
    """List what a run of `num_steps` over `num_rows` training rows has too little of, apart from evaluation rows."""
    checks = check_epoch(job, num_rows), check_steps(job, num_rows, num_steps)
    checks += check_growth(job, num_rows), check_averaging(job, num_steps)
    return [warning for warning in checks if warning is not None]


def count_run_steps(job: JobConfig, rows: RowCounts) -> int | None:
    """Count the steps of a run of `job` on these rows; None if the noise scale decides how its batch grows."""
    stages = list_run_stages(job, rows)
    return None if stages is None else stages[-1].end_step


def list_run_stages(job: JobConfig, rows: RowCounts) -> list[BatchStage] | None:
    """List the stages of a run of `job` on these rows; None if the noise scale decides how its batch grows."""
    return None if job.batch.growth is not None else list_stages(job, _count_epoch_rows(job, rows))


def count_run_samples(job: JobConfig, rows: RowCounts) -> int:
    """Count the samples of a run of `job` on these rows."""
    return count_run_rows(_count_epoch_rows(job, rows), job.run.epochs)


def _count_epoch_rows(job: JobConfig, rows: RowCounts) -> int:
    """Count the rows that an epoch trains on: without those that are held out for validation."""
    run = job.run
    num_held_out = count_validation_rows(rows.num_train_rows, run.validation_fraction, job.data.split)
    return max(1, rows.num_train_rows - num_held_out)


def _count_steps(job: JobConfig, num_rows: int) -> int:
    """Count the steps of a run over `num_rows` training rows: of one size where the noise scale grows it."""
    return list_stages(job, num_rows)[-1].end_step


def check_epoch(job: JobConfig, num_rows: int) -> QualityWarning | None:
    """Warn where an epoch of `num_rows` training rows is shorter than a batch; None otherwise."""
    global_size = job.batch.global_size
    if num_rows >= global_size:
        return None
    message = (
        f"an epoch has {num_rows:,} training rows, fewer than batch.global_size {global_size:,}: each step trains on "
        f"all of them, at the learning rates of {global_size:,}; set a batch.global_size of up to {num_rows:,}"
    )
    return QualityWarning(name=SHORT_EPOCH, message=message)


def check_steps(job: JobConfig, num_rows: int, num_steps: int) -> QualityWarning | None:
    """Warn where a run over `num_rows` training rows has few steps; None otherwise."""
    num_run_rows = num_rows * job.run.epochs
    # A batch that the preset has chosen is as small as it should be; where nothing is recorded, it may have.
    preset = None if job.filled_by_preset is None or BATCH_FIELD in job.filled_by_preset else job.preset
    min_steps = 0 if preset is None else get_min_steps(preset, is_growing=job.batch.is_growing)
    # Smaller batches that the run begins with count in the preset's rule as parts of steps of the last size.
    num_last_steps = math.ceil(num_run_rows / job.batch.global_size)
    if num_last_steps < min_steps <= num_run_rows / MIN_BATCH:
        fitting = choose_batch(num_run_rows, min_steps, MAX_BATCH)
        message = (
            f"{num_rows:,} training rows in {format_epochs(job.run.epochs)} are only "
            f"{format_count(num_last_steps, 'step')} of {job.batch.global_size:,}, and the preset {preset} asks for "
            f"at least {min_steps}: leave batch.global_size out, or set at most {fitting:,}"
        )
        return QualityWarning(name=FEW_STEPS, message=message)
    least = 0 if job.preset or job.batch.is_growing else get_min_large_steps(job.batch.global_size, num_run_rows)
    if num_steps < least:
        return _warn_of_large_batch(job, num_rows, num_steps, least)
    if num_steps >= MIN_STEPS_OF_RUN:
        return None
    fitting = _find_fitting_batch(job, num_rows, MIN_STEPS_OF_RUN)
    smaller = f"set a batch.global_size of up to {fitting:,}, or " if 0 < fitting < job.batch.global_size else "set "
    message = (
        f"the run has only {format_count(num_steps, 'step')} to learn in: {smaller}more run.epochs, for "
        f"{num_rows:,} training rows"
    )
    return QualityWarning(name=FEW_STEPS, message=message)


def check_averaging(job: JobConfig, num_steps: int) -> QualityWarning | None:
    """Warn if ranks never exchange their dense weights in a run of `num_steps`, although they should."""
    averaging, world_size = job.dense_averaging, job.resources.world_size
    if averaging is None or (world_size > 1 and averaging.interval < num_steps):
        return None
    message = "dense_averaging: there is one rank, so that nothing is averaged; set more ranks, or dense_averaging null"
    if world_size > 1:
        message = (
            f"dense_averaging.every: {averaging.interval:,} steps are not fewer than the {num_steps:,} of the run, so "
            f"that ranks never exchange their weights; set less, such as {max(1, min(8, num_steps // 2))}"
        )
    return QualityWarning(name=AVERAGES_NOTHING, message=message)


def _warn_of_large_batch(job: JobConfig, num_rows: int, num_steps: int, min_steps: int) -> QualityWarning:
    """Warn of a batch of one size that is larger than any chosen without a preset, and leaves few steps.

    Such runs have lost AUC (docs/evidence.md): 0.001 to 0.004 in 220 to 250 steps, 0.02 to 0.06 in 56.
    """
    fitting = max(_find_fitting_batch(job, num_rows, min_steps), job.resources.world_size)
    # A model that sees its rows again learns them by heart.
    longer = "more run.epochs, " if job.run.epochs <= 1 else ""
    message = (
        f"the run has only {format_count(num_steps, 'step')} of {job.batch.global_size:,} to learn in. For "
        f"{num_rows:,} training rows set a batch.global_size of up to {fitting:,}, {longer}or the preset large_batch "
        "in place of a batch.global_size"
    )
    return QualityWarning(name=FEW_STEPS, message=message)


def _find_fitting_batch(job: JobConfig, num_rows: int, min_steps: int) -> int:
    """Find the largest batch that makes so many steps, with as many samples on every rank; 0 for too few rows."""
    num_ranks = job.resources.world_size
    return int(num_rows * job.run.epochs) // (min_steps * num_ranks) * num_ranks


def check_evaluation_rows(num_rows: int, label_rate: float, source: EvaluationSource) -> QualityWarning | None:
    """Warn if `num_rows` evaluation rows are too few to compare models, or all of one label; None otherwise.

    label_rate: share of positive rows; of the training rows if it is not known. source: source of the rows.
    """
    if not num_rows:
        return None
    if label_rate in (0.0, 1.0):
        message = f"every evaluation row has label {label_rate:.0f}: there is no AUC of such rows; {source.value}"
        return QualityWarning(name=FEW_EVALUATION_ROWS, message=message)
    num_positives = round(num_rows * label_rate)
    if num_positives in (0, num_rows):
        label, num_expected = (1, num_rows * label_rate) if num_positives == 0 else (0, num_rows * (1 - label_rate))
        message = (
            f"of the {num_rows:,} evaluation rows only about {num_expected:.1g} have label {label}: there may be no "
            f"AUC of such rows; {source.value}"
        )
        return QualityWarning(name=FEW_EVALUATION_ROWS, message=message)
    error = estimate_auc_standard_error(TYPICAL_AUC, num_positives, num_rows - num_positives)
    if error <= MAX_STANDARD_ERROR:
        return None
    message = (
        f"there are only {num_rows:,} evaluation rows, about {num_positives:,} of them positive: an AUC of "
        f"{TYPICAL_AUC} would have a standard error of about {error:.3f}, too much to tell models apart; "
        f"{source.value}"
    )
    return QualityWarning(name=FEW_EVALUATION_ROWS, message=message)


def check_growth(job: JobConfig, num_rows: int) -> QualityWarning | None:
    """Warn of a batch that no noise scale lets grow in a run over `num_rows` training rows; None otherwise."""
    growth = job.batch.growth
    if growth is None:
        return None
    if num_rows <= growth.start_size:
        message = (
            f"batch.growth: an epoch has {num_rows:,} training rows, so that no batch is larger than the start_size of "
            f"{growth.start_size:,}; set a batch.growth.start_size below {num_rows:,}, or leave growth out"
        )
        return QualityWarning(name=CANNOT_GROW, message=message)
    every = job.get_moments_every(growth.start_size)
    num_steps = _count_steps_before_last_check(growth, count_run_rows(num_rows, job.run.epochs))
    num_measured = -(-num_steps // every)
    if num_measured >= MIN_MEASUREMENTS:
        return None
    measured = "" if every == 1 else f", one in {every:,} steps"
    message = (
        f"batch.growth: the batch stays at {growth.start_size:,}: there is a noise scale from {MIN_MEASUREMENTS} "
        f"measurements on, and up to the last comparison with it the run makes {num_measured}{measured}; set a smaller "
        f"batch.growth.start_size{', moments.every' if every > 1 else ''} or check_every_fraction, more run.epochs, or "
        f"leave growth out ({format_count(num_rows, 'training row')})"
    )
    return QualityWarning(name=CANNOT_GROW, message=message)


def _count_steps_before_last_check(growth: BatchGrowth, num_run_rows: int) -> int:
    """Count the steps of the first size before the last comparison with the noise scale; 0 if there is none.

    A comparison comes after the batch that reaches its share of the samples, unless the run ends there.
    """
    for number in range(math.ceil(1 / growth.check_every_fraction), 0, -1):
        num_steps = -(-math.ceil(number * growth.check_every_fraction * num_run_rows) // growth.start_size)
        if num_steps * growth.start_size < num_run_rows:
            return num_steps
    return 0
