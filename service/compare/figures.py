"""Compared final figures, each with the direction in which it gets better."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from dlrm.record import GROUPED_AUC, RECALL_AT, describe_further_figures
from service.schemas import Better

BETTER: dict[str, Better] = {
    "auc": "higher",
    "log_loss": "lower",
    "normalized_entropy": "lower",
    "calibration": "nearer to 1",
    GROUPED_AUC: "higher",
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


def list_compared(metrics: Iterable[Mapping[str, float | None]]) -> list[str]:
    """List the compared figures of jobs with these metrics: recall too, at the ranks that they have."""
    ranks = {name for own in metrics for name in describe_further_figures(own) if name.startswith(RECALL_AT)}
    place = [*BETTER].index(GROUPED_AUC) + 1
    recalls = sorted(ranks, key=lambda name: int(name.removeprefix(RECALL_AT)))
    return [*[*BETTER][:place], *recalls, *[*BETTER][place:]]


def get_better(name: str) -> Better | None:
    """Return which values of a figure are better; None if it is not compared."""
    return "higher" if name.startswith(RECALL_AT) else BETTER.get(name)


def compute_badness(name: str, value: float) -> float:
    """Compute a number that is least for the best value of a compared figure."""
    better = get_better(name)
    return -value if better == "higher" else value if better == "lower" else abs(value - 1)


def get_figure(
    name: str, metrics: Mapping[str, float | None], started_at: datetime | None, finished_at: datetime | None
) -> float | None:
    """Return a figure of a job with these metrics and times; None if absent."""
    if name != SECONDS:
        return metrics.get(name)
    return (finished_at - started_at).total_seconds() if started_at and finished_at else None
