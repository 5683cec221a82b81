"""Numbers of a report as text, the same in tables, plots and sentences."""

import math

from cli.experiments.report.batches import TrialBatch
from cli.experiments.report.critical_batch import NoiseScale
from cli.local.console import UNKNOWN
from dlrm.record.intervals import Estimate

ROWS_MARK = "†"
"""Mark of an interval that covers the choice of evaluation rows alone."""
SEEDS_MARK = "‡"
"""Mark of a paired interval that covers seeds alone, since scores are not there."""
DIGITS = 5
"""Decimals of AUC and log-loss: intervals of some 100,000 evaluation rows have two digits in them."""


def format_estimate(estimate: Estimate | None) -> str:
    """Format a mean with half of the width of its 95 % interval, marked if the interval covers rows alone."""
    return UNKNOWN if estimate is None else f"{estimate.format(DIGITS)}{_mark_rows(estimate)}"


def format_difference(difference: Estimate | None, *, is_paired: bool = True) -> str:
    """Format a difference with its sign. is_paired: whether it is marked if its interval covers seeds alone."""
    if difference is None:
        return UNKNOWN
    mark = f" {SEEDS_MARK}" if is_paired and difference.source == "seeds" else ""
    return f"{difference.format(DIGITS, is_signed=True)}{_mark_rows(difference)}{mark}"


def _mark_rows(estimate: Estimate) -> str:
    """Return the mark of an interval that covers rows alone; empty for another one."""
    return f" {ROWS_MARK}" if estimate.source == "rows" else ""


def format_count(value: float | None) -> str:
    """Format a whole number, or a mean of whole numbers."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def format_batch(batch: TrialBatch) -> str:
    """Format a batch, or the words that it grows."""
    if not batch.is_growing:
        return format_count(batch.size)
    return "grows" if batch.size is None else f"grows to at most {batch.size:,}"


def format_seconds(value: float | None) -> str:
    """Format seconds: with a decimal below 100."""
    return UNKNOWN if value is None else f"{value:,.1f}" if value < 100.0 else f"{value:,.0f}"


def format_noise(noise: NoiseScale | None) -> str:
    """Format a noise scale, or its bounds."""
    if noise is None:
        return UNKNOWN
    low, high = format_rough(noise.low), format_rough(noise.high)
    return f"above {low}" if math.isinf(noise.high) else low if low == high else f"{low} to {high}"


def format_rough(value: float | None) -> str:
    """Format a number that is known to a few percent, with 3 significant digits."""
    if value is None:
        return UNKNOWN
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
