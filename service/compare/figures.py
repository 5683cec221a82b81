"""Compared final figures, each with the direction in which it gets better."""

from collections.abc import Callable, Mapping
from datetime import datetime

BADNESS: dict[str, Callable[[float], float]] = {
    "auc": lambda value: -value,
    "log_loss": lambda value: value,
    "normalized_entropy": lambda value: value,
    "calibration": lambda value: abs(value - 1.0),
    "validation_auc": lambda value: -value,
    "validation_log_loss": lambda value: value,
    "samples_per_second": lambda value: -value,
    "seconds": lambda value: value,
}
"""Compared figures, each with a function of its value: least for the best one."""
SECONDS = "seconds"
"""Figure of the seconds from the first start of a job to its end, which is not in its metrics."""


def get_figure(
    name: str, metrics: Mapping[str, float | None], started_at: datetime | None, finished_at: datetime | None
) -> float | None:
    """Return a figure of a job with these metrics and times; None if absent."""
    if name != SECONDS:
        return metrics.get(name)
    return (finished_at - started_at).total_seconds() if started_at and finished_at else None
