"""Courses of training: means over the seeds of a cell, and the steps and samples to a target AUC."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cli.experiments.report.cells import ReportCell
from cli.experiments.trials.fields import format_value
from cli.experiments.trials.results import CurvePoint
from dlrm.config import BATCH_FIELD

CoursePoint = tuple[float, float]
"""Samples, and the mean of the metric over seeds."""


@dataclass(frozen=True)
class TrainingCurve:
    """TrainingCurve of the trials of one cell; a metric that a trial does not have is empty."""

    cell: ReportCell
    auc: Sequence[CoursePoint]
    log_loss: Sequence[CoursePoint]
    train_auc_gap: Sequence[CoursePoint]
    """AUC on training rows less the AUC on evaluation rows."""


def average_courses(cells: Sequence[ReportCell]) -> list[TrainingCurve]:
    """Average the evaluations of each cell over its seeds; cells without any are left out."""
    courses = [
        TrainingCurve(
            cell,
            _average(cell, lambda point: point.auc),
            _average(cell, lambda point: point.log_loss),
            _average(cell, _compute_gap),
        )
        for cell in cells
    ]
    return [course for course in courses if course.log_loss]


def _compute_gap(point: CurvePoint) -> float | None:
    return None if point.train_auc is None or point.auc is None else point.train_auc - point.auc


def _average(cell: ReportCell, metric: Callable[[CurvePoint], float | None]) -> list[CoursePoint]:
    """Average a metric at the samples of the first seed's evaluations that lie within the curves of all seeds.

    The curve of another seed is linear between two evaluations: a batch that grows by its noise scale shifts them.
    """
    curves = [
        sorted(
            (float(point.num_samples), value)
            for point in trial.result.curve
            if point.num_samples is not None and (value := metric(point)) is not None
        )
        for trial in cell.trials
    ]
    if not curves or not all(curves):
        return []
    start, end = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    places = [samples for samples, _ in curves[0] if start <= samples <= end]
    # Not before it is needed: other commands run without the library.
    import numpy as np

    values = [np.interp(places, [point[0] for point in curve], [point[1] for point in curve]) for curve in curves]
    return list(zip(places, np.mean(values, axis=0).tolist(), strict=True))


Miss = Literal["never", "before the first evaluation"]
_REASONS: tuple[Miss, ...] = ("never", "before the first evaluation")


@dataclass(frozen=True)
class Crossing:
    """Place at which a run has reached the target, interpolated between two of its evaluations."""

    steps: float
    samples: float


@dataclass(frozen=True)
class Reached:
    """Way of one cell to the target AUC."""

    cell: ReportCell
    batch: int
    """Batch of the cell; 0 if it grows, or is not known."""
    crossings: Sequence[Crossing]
    """Crossings of the seeds that have one."""
    misses: Mapping[Miss, int]
    """Number of seeds without one, by reason."""

    @property
    def is_whole(self) -> bool:
        """Whether every seed has a crossing; a mean of some favours methods with seeds that fail."""
        return bool(self.crossings) and len(self.crossings) == self.cell.num_seeds

    @property
    def steps(self) -> float | None:
        """Geometric mean of the steps over the seeds; None if a seed has none."""
        return statistics.geometric_mean(point.steps for point in self.crossings) if self.is_whole else None

    @property
    def samples(self) -> float | None:
        """Geometric mean of the samples over the seeds; None if a seed has none."""
        return statistics.geometric_mean(point.samples for point in self.crossings) if self.is_whole else None


def choose_target(cells: Sequence[ReportCell]) -> float | None:
    """Choose the highest AUC that every trial of every cell reaches in its evaluations; None without evaluations."""
    best = [
        max((point.auc for point in trial.result.curve if point.auc is not None), default=None)
        for cell in cells
        for trial in cell.trials
    ]
    known = [auc for auc in best if auc is not None]
    return min(known, default=None)


def measure_ways(cells: Sequence[ReportCell], target: float) -> list[Reached]:
    """Measure the way of every cell that has evaluations."""
    evaluated = (cell for cell in cells if any(trial.result.curve for trial in cell.trials))
    return [Reached(cell, cell.batch.constant_size or 0, *_find_crossings(cell, target)) for cell in evaluated]


def _find_crossings(cell: ReportCell, target: float) -> tuple[list[Crossing], dict[Miss, int]]:
    """Find the crossings of the seeds that have one, and count the other seeds by reason."""
    found = [find_crossing(trial.result.curve, target) for trial in cell.trials]
    misses: dict[Miss, int] = {reason: found.count(reason) for reason in _REASONS if reason in found}
    return [each for each in found if isinstance(each, Crossing)], misses


def find_crossing(curve: Sequence[CurvePoint], target: float) -> Crossing | Miss:
    """Find the place at which a run first reaches the target, linear between the evaluations below it and after it."""
    points = [
        (float(point.step), float(point.num_samples), point.auc)
        for point in curve
        if point.auc is not None and point.num_samples is not None
    ]
    if not points or all(auc < target for _, _, auc in points):
        return "never"
    if points[0][2] >= target:
        return Crossing(*points[0][:2]) if points[0][2] == target else "before the first evaluation"
    number = next(number for number, (_, _, auc) in enumerate(points) if auc >= target)
    (step, samples, auc), (next_step, next_samples, next_auc) = points[number - 1], points[number]
    share = (target - auc) / (next_auc - auc)
    return Crossing(step + share * (next_step - step), samples + share * (next_samples - samples))


def name_series(cell: ReportCell) -> str:
    """Return the method, with compared values other than the batch."""
    others = [format_value(value) for field, value in cell.compared.items() if field != BATCH_FIELD]
    return ", ".join([cell.method, *others])
