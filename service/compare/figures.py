"""Compared final figures, each with the direction in which it gets better."""

from collections.abc import Mapping
from datetime import datetime

from service.schemas import Better

BETTER: dict[str, Better] = {
    "auc": "higher",
    "log_loss": "lower",
    "normalized_entropy": "lower",
    "calibration": "nearer to 1",
    "validation_auc": "higher",
    "validation_log_loss": "lower",
    "box_sharpness": "lower",
    "small_box_sharpness": "lower",
    "hessian_eigenvalue": "lower",
    "train_auc_gap": "lower",
    "train_log_loss_gap": "higher",
    "samples_per_second": "higher",
    "seconds": "lower",
}
"""Compared figures, each with the values that are better."""
SECONDS = "seconds"
"""Figure of the seconds from the first start of a job to its end, which is not in its metrics."""


def compute_badness(name: str, value: float) -> float:
    """Compute a number that is least for the best value of a compared figure."""
    return {"higher": -value, "lower": value, "nearer to 1": abs(value - 1)}[BETTER[name]]


def get_figure(
    name: str, metrics: Mapping[str, float | None], started_at: datetime | None, finished_at: datetime | None
) -> float | None:
    """Return a figure of a job with these metrics and times; None if absent."""
    if name != SECONDS:
        return metrics.get(name)
    return (finished_at - started_at).total_seconds() if started_at and finished_at else None
