"""Courses of training: metrics of the evaluations against samples, as means over the seeds of a cell."""

import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.experiments.report.cells import ReportCell
from cli.experiments.sweep.results import CurvePoint

CoursePoint = tuple[float, float]
"""Samples, and the mean of the metric over seeds."""


@dataclass(frozen=True)
class Course:
    """Course of the trials of one cell; a metric that a trial does not have is empty."""

    cell: ReportCell
    auc: Sequence[CoursePoint]
    log_loss: Sequence[CoursePoint]
    train_auc_gap: Sequence[CoursePoint]
    """AUC on training rows less that on evaluation rows."""


def average_courses(cells: Sequence[ReportCell]) -> list[Course]:
    """Average the evaluations of each cell over its seeds; cells without any are left out."""
    courses = [
        Course(
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
    return [
        (samples, statistics.fmean(_interpolate(curve, samples) for curve in curves))
        for samples, _ in curves[0]
        if start <= samples <= end
    ]


def _interpolate(curve: Sequence[CoursePoint], samples: float) -> float:
    number = bisect_left(curve, samples, key=lambda point: point[0])
    place, value = curve[number]
    if place == samples:
        return value
    earlier, earlier_value = curve[number - 1]
    return earlier_value + (samples - earlier) / (place - earlier) * (value - earlier_value)
