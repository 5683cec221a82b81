"""Compared final figures, each with the direction in which it gets better."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from dlrm.record import FIGURES_AT, GROUPED_AUC, describe_further_figures
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
_AT = tuple(FIGURES_AT)
SECONDS = "seconds"
"""Figure of the seconds from the first start of a job to its end, which is not in its metrics."""


def list_compared(metrics: Iterable[Mapping[str, float | None]]) -> list[str]:
    """List the compared figures of jobs with these metrics: recall and NDCG too, at the ranks that they have."""
    known = {name: value for own in metrics for name, value in own.items() if value is not None}
    place = [*BETTER].index(GROUPED_AUC) + 1
    ranked = [name for name in describe_further_figures(known) if name.startswith(_AT)]
    return [*[*BETTER][:place], *ranked, *[*BETTER][place:]]


def get_better(name: str) -> Better | None:
    """Return which values of a figure are better; None if it is not compared."""
    return "higher" if name.startswith(_AT) else BETTER.get(name)


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
