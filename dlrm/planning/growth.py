"""Warns of a batch that should grow by the noise scale, and cannot. Imports no torch and no numpy."""

import math

from dlrm.config import BatchGrowth, JobConfig, count_run_rows, format_count
from dlrm.gradient_stats.noise import MIN_MEASUREMENTS
from dlrm.record import CANNOT_GROW, QualityWarning


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
