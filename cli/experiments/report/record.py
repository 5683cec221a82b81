"""Numbers of a report as JSON."""

import math
from typing import Any

from cli.experiments.report.cells import ReportCell
from cli.experiments.report.comparison import Difference
from cli.experiments.report.courses import Reached, TrainingCurve, name_series
from cli.experiments.report.numbers import MainRow, Scaling, SweepReport
from cli.experiments.report.power_laws import make_power_law_records
from dlrm.record.intervals import Estimate


def make_report_record(report: SweepReport) -> dict[str, Any]:
    """Return all numbers of a report as JSON."""
    return {
        "files": [str(file) for file in report.loaded.files],
        "num_unasked": report.loaded.num_unasked,
        "rows": [_make_row_record(row) for row in report.rows],
        "differences": [_make_difference_record(difference) for difference in report.differences],
        "courses": [_make_course_record(course) for course in report.courses],
        "target_auc": report.target_auc,
        "scalings": [_make_scaling_record(scaling) for scaling in report.scalings],
        "growing": [_make_growing_record(reached) for reached in report.growing],
        "power_laws": make_power_law_records(report.rows),
        "equal_samples": [{"num_samples": group.length, "cells": group.labels} for group in report.sample_groups],
        "equal_steps": [{"num_steps": group.length, "cells": group.labels} for group in report.step_groups],
        "broken_files": list(report.broken_files),
    }


def _make_row_record(row: MainRow) -> dict[str, Any]:
    cell = row.cell
    counts = ("is_confirmed", "num_seeds", "num_settings", "num_missing", "is_open", "num_diverged", "num_failed")
    return {
        **_name_cell(cell),
        **{name: getattr(cell, name) for name in counts},
        **{name: _make_estimate_record(getattr(row, name)) for name in ("auc", "log_loss", "train_auc_gap")},
        "sharpness": {name: _make_estimate_record(estimate) for name, estimate in row.sharpness.items()},
        "seeds": [trial.result.seed for trial in cell.trials],
        "edges": list(cell.edges),
        "batch": cell.batch.constant_size,
        "has_growing_batch": cell.batch.is_growing,
        "num_steps": cell.compute_mean("num_steps"),
        "num_samples": cell.compute_mean("num_samples"),
        "cpu_seconds": cell.compute_cpu_seconds(),
        "samples_per_second": cell.compute_speed(),
    }


def _name_cell(cell: ReportCell) -> dict[str, Any]:
    settings = None if cell.settings is None else dict(cell.settings)
    return {"method": cell.method, "compared": dict(cell.compared), "settings": settings}


def _make_course_record(course: TrainingCurve) -> dict[str, Any]:
    return {
        "cell": course.cell.label,
        "num_seeds": len(course.cell.trials),
        **{name: [list(point) for point in getattr(course, name)] for name in ("auc", "log_loss", "train_auc_gap")},
    }


def _make_difference_record(difference: Difference) -> dict[str, Any]:
    comparison = difference.comparison
    return {
        "cell": comparison.cell.label,
        "base": comparison.base.label,
        **{name: _make_estimate_record(getattr(difference, name)) for name in ("auc", "log_loss")},
        "seeds": [first.result.seed for first, _ in comparison.pairs],
        "is_paired_by_rows": comparison.is_on_rows,
        **{name: getattr(comparison, name) for name in ("row_refusal", "refusal", "inequality")},
        "verdict": difference.verdict,
    }


def _make_scaling_record(scaling: Scaling) -> dict[str, Any]:
    other, noise = scaling.fit_without_largest, scaling.noise_scale
    fit = None if scaling.fit is None or scaling.fit.is_at_limit else scaling.fit
    high = None if fit is None or fit.high is None or math.isinf(fit.high) else fit.high
    return {
        "series": scaling.series,
        "batches": [
            {"batch": point.batch, "steps": point.steps, "samples": point.samples, "misses": dict(point.misses)}
            for point in scaling.reached
        ],
        "critical_batch": fit and fit.critical_batch,
        "critical_batch_low": fit and fit.low,
        "critical_batch_high": high,
        "critical_batch_without_largest": None if other is None or other.is_at_limit else other.critical_batch,
        "is_at_limit": scaling.fit and scaling.fit.is_at_limit,
        "min_samples": fit and fit.min_samples,
        "min_steps": fit and fit.min_steps,
        "noise_scale": noise and noise.value,
        "noise_scale_low": noise and noise.low,
        "noise_scale_high": None if noise is None or math.isinf(noise.high) else noise.high,
    }


def _make_growing_record(reached: Reached) -> dict[str, Any]:
    cell = reached.cell
    return {
        "series": name_series(cell),
        **_name_cell(cell),
        "num_samples": cell.compute_mean("num_samples"),
        "steps": reached.steps,
        "samples": reached.samples,
        "misses": dict(reached.misses),
    }


def _make_estimate_record(estimate: Estimate | None) -> dict[str, Any] | None:
    names = ("value", "low", "high", "standard_error", "source", "num_seeds")
    return None if estimate is None else {name: getattr(estimate, name) for name in names}
