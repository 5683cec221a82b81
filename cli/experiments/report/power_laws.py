"""Power laws of AUC and log-loss against samples, parameters and compute, and the section of a report about them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

from cli.experiments.report.cells import ReportCell, are_equal
from cli.experiments.report.content import Block, Notes, Paragraph, Plot, Section, Table
from cli.experiments.report.figures import DIGITS
from cli.experiments.report.numbers import MainRow
from cli.experiments.report.plot import Axis, Point, Series, make_plot
from cli.experiments.trials.fields import format_cell
from dlrm.record import MIN_SIZES, EndReason, Interval, SizeLaw
from dlrm.record.intervals import Estimate

FACTORS = (2.0, 10.0)
"""Multiples of the largest size for which a law is asked."""
_NUM_CURVE_POINTS = 60
_NOTE = (
    "Law: E = a x^b + c for E = 1 - AUC or the log-loss (Hestness et al. 2017, arXiv 1712.00409; of recommendation "
    "models Ardalani et al. 2022, arXiv 2208.08489), by least squares over the results of the first table, a point a "
    "size, with the intervals of that table as bars. Its 95 % intervals are Student's, by how far the points lie off "
    "the law, with three degrees of freedom fewer than points; they assume that the law holds beyond the sizes too. "
    "An exponent near 0 is a logarithm. Samples are varied for one model, parameters (tables included) at equal "
    "samples. Compute: samples times the floating-point operations of the dense part in a forward and backward pass, "
    "without the optimizer. If these differ from model to model, its points are the results that are better than all "
    "of less compute; otherwise the law is that of samples."
)

Metric = Literal["auc", "log_loss"]
_ERRORS: Mapping[Metric, str] = {"auc": "1 - AUC", "log_loss": "log-loss"}
_METRICS: Mapping[Metric, str] = {"auc": "AUC", "log_loss": "log-loss"}


def _count_samples(cell: ReportCell) -> float | None:
    return cell.compute_mean("num_samples")


def _count_parameters(cell: ReportCell) -> float | None:
    return next(iter(cell.list_values("num_parameters")), None)


def _count_compute(cell: ReportCell) -> float | None:
    samples, flops = _count_samples(cell), next(iter(cell.list_values("flops_per_sample")), None)
    return None if samples is None or flops is None else samples * flops


_SIZES: Mapping[str, Callable[[ReportCell], float | None]] = {
    "samples": _count_samples,
    "parameters": _count_parameters,
    "compute": _count_compute,
}


@dataclass(frozen=True)
class SizedResults:
    """Results of one method at several sizes, all else the same."""

    series: str
    size: str
    """Name of the size: a key of _SIZES."""
    metric: Metric
    points: Sequence[tuple[float, Estimate]]
    """Sizes with 1 - AUC or the log-loss, smallest first."""

    @cached_property
    def law(self) -> SizeLaw | None:
        """Law of the results; None for fewer than MIN_SIZES sizes."""
        if len(self.points) < MIN_SIZES:
            return None
        return SizeLaw([(size, error.value) for size, error in self.points])

    def list_doubts(self, law: SizeLaw) -> list[str]:
        """List what makes the law poor."""
        errors = [error.value for _, error in self.points]
        exponent, far = law.exponent, law.predict(FACTORS[-1] * self.points[-1][0])
        reasons = {
            "the sizes leave a bound of its exponent open": math.isinf(exponent.low) or exponent.high == 0.0,
            "a larger size has a larger error": errors != sorted(errors, reverse=True),
            f"its interval at {FACTORS[-1]:.0f} times the largest is longer than the range of the errors": (
                far.high - far.low > max(errors) - min(errors)
            ),
        }
        return [reason for reason, holds in reasons.items() if holds]

    def predict(self, law: SizeLaw, factor: float) -> Interval:
        """Predict the metric at a multiple of the largest size; an error is not below 0."""
        value, low, high = (max(bound, 0.0) for bound in law.predict(factor * self.points[-1][0]))
        return Interval(1.0 - value, 1.0 - high, 1.0 - low) if self.metric == "auc" else Interval(value, low, high)


def find_sized_results(rows: Sequence[MainRow]) -> list[SizedResults]:
    """Find the results that differ in samples, parameters or compute, in one group for each law.

    A compared field is of a size if the size differs between two results of a method that differ in this field alone.
    The results of a law agree in all other fields. A run that ended early is left out.
    """
    whole = [row for row in rows if _is_whole(row.cell)]
    found: list[SizedResults] = []
    for size, count in _SIZES.items():
        sized = [(number, row) for row in whole if (number := count(row.cell)) is not None]
        fields = _find_size_fields([(number, row.cell) for number, row in sized])
        groups: dict[str, list[tuple[float, MainRow]]] = {}
        for number, row in sized if fields else ():
            others = {field: value for field, value in row.cell.compared.items() if field not in fields}
            groups.setdefault(format_cell(row.cell.method, others), []).append((number, row))
        for series, group in groups.items():
            if len(group) > 1:
                found += (SizedResults(series, size, metric, _list_points(group, size, metric)) for metric in _ERRORS)
    return [results for results in found if results.points]


def _is_whole(cell: ReportCell) -> bool:
    return all(trial.result.reason == EndReason.COMPLETED for trial in cell.trials)


def _find_size_fields(cells: Iterable[tuple[float, ReportCell]]) -> set[str]:
    """Find the compared fields that change a size. cells: each with its size."""
    fields: set[str] = set()
    for (size, cell), (other_size, other) in combinations(cells, 2):
        differing = [field for field, value in cell.compared.items() if other.compared[field] != value]
        if cell.method == other.method and len(differing) == 1 and not are_equal(size, other_size):
            fields |= {*differing}
    return fields


def _list_points(group: Sequence[tuple[float, MainRow]], size: str, metric: Metric) -> list[tuple[float, Estimate]]:
    """List the sizes of results with their errors, smallest first.

    Of compute these are the results that are better than all of less compute, and none if it is proportional to the
    samples.
    """
    known = [(number, _get_error(row, metric)) for number, row in group]
    points = sorted(((number, error) for number, error in known if error is not None), key=lambda point: point[0])
    models = {row.cell.trials[0].result.metrics.get("flops_per_sample") for _, row in group}
    if size != "compute":
        return points
    if len(models) == 1:
        return []
    best: list[tuple[float, Estimate]] = []
    for number, error in points:
        if not best or error.value < best[-1][1].value:
            best.append((number, error))
    return best


def _get_error(row: MainRow, metric: Metric) -> Estimate | None:
    estimate: Estimate | None = getattr(row, metric)
    if estimate is None or metric == "log_loss":
        return estimate
    return Estimate(
        1.0 - estimate.value, estimate.standard_error, estimate.half_width, estimate.source, estimate.num_seeds
    )


def make_power_law_sections(rows: Sequence[MainRow]) -> list[Section]:
    """Make the section of power laws; none if the results do not differ in samples, parameters or compute."""
    found = find_sized_results(rows)
    if not found:
        return []
    fitted = [(results, law) for results in found if (law := results.law) is not None]
    blocks: list[Block] = [*_make_plots(found)]
    if fitted:
        blocks.append(_make_table(fitted))
    blocks += [Notes(_list_remarks(found, fitted, rows)), Paragraph(_NOTE)]
    return [Section("Power laws", blocks)]


def _make_plots(found: Sequence[SizedResults]) -> list[Plot]:
    """Make a plot of each size and metric."""
    groups: dict[tuple[str, Metric], list[SizedResults]] = {}
    for results in found:
        groups.setdefault((results.size, results.metric), []).append(results)
    return [_make_plot(size, metric, group) for (size, metric), group in groups.items()]


def _make_plot(size: str, metric: Metric, group: Sequence[SizedResults]) -> Plot:
    series: list[Series] = []
    for number, results in enumerate(group):
        points = [Point(place, error.value, error.low, error.high) for place, error in results.points]
        series.append(Series(results.series, points, "marks", number))
        if (law := results.law) is not None:
            low, high = points[0].x, points[-1].x
            places = [low * (high / low) ** (part / _NUM_CURVE_POINTS) for part in range(_NUM_CURVE_POINTS + 1)]
            fitted = [Point(place, law.predict(place).value) for place in places]
            series.append(Series(f"{results.series}, x^{law.exponent.value:.2f}", fitted, "line", number))
    error = _ERRORS[metric]
    return make_plot(
        f"{metric.replace('_', '-')}-law-of-{size}",
        f"{error} by {size}",
        f"{error} against {size}, both on logarithmic axes, with the power law; the exponents are in the table.",
        Axis(f"{size}, floating-point operations" if size == "compute" else size, "log"),
        Axis(error, "narrow log"),
        series,
    )


def _make_table(fitted: Sequence[tuple[SizedResults, SizeLaw]]) -> Table:
    headings = ["method", "metric", "against", "sizes", "exponent", "95 % interval"]
    headings += [f"metric at {factor:.0f} times the largest" for factor in FACTORS]
    rows = [
        [
            results.series,
            _METRICS[results.metric],
            results.size,
            str(len(results.points)),
            f"{law.exponent.value:.2f}",
            _format_bounds(law.exponent),
            *(_format_prediction(results.predict(law, factor)) for factor in FACTORS),
        ]
        for results, law in fitted
    ]
    return Table("Power laws of 1 - AUC and of the log-loss", headings, rows, ["method", "metric", "against"])


def _format_bounds(exponent: Interval) -> str:
    high = f"{exponent.high:.2f}" if exponent.high else "0"
    return f"below {high}" if math.isinf(exponent.low) else f"{exponent.low:.2f} to {high}"


def _format_prediction(metric: Interval) -> str:
    value, low, high = (f"{number:.{DIGITS}f}" for number in metric)
    return f"{value} ({low} to {high})"


def _list_remarks(
    found: Sequence[SizedResults], fitted: Sequence[tuple[SizedResults, SizeLaw]], rows: Sequence[MainRow]
) -> list[str]:
    """List the poor laws and their reasons, the results with too few sizes, and the results that are left out."""
    poor: dict[str, list[str]] = {}
    for results, law in fitted:
        if doubts := results.list_doubts(law):
            name = f"{results.series}, {_ERRORS[results.metric]} against {results.size}"
            poor.setdefault(" and ".join(doubts), []).append(name)
    remarks = [f"The law is poor, since {doubts}: {'; '.join(names)}." for doubts, names in poor.items()]
    few = [f"{results.series} ({results.size}: {len(results.points)})" for results in found if results.law is None]
    if few:
        remarks.append(
            f"Too few sizes for a law, of at least {MIN_SIZES}, since it has three numbers: "
            f"{'; '.join(dict.fromkeys(few))}."
        )
    if early := [row.cell.label for row in rows if row.cell.trials and not _is_whole(row.cell)]:
        remarks.append(f"Left out, since a run ended early: {'; '.join(early)}.")
    return remarks


def make_power_law_records(rows: Sequence[MainRow]) -> list[dict[str, Any]]:
    """Return the laws as JSON; with too few sizes their numbers are null."""
    return [_make_record(results, results.law) for results in find_sized_results(rows)]


def _make_record(results: SizedResults, law: SizeLaw | None) -> dict[str, Any]:
    exponent = law and law.exponent
    return {
        "series": results.series,
        "size": results.size,
        "metric": results.metric,
        "points": [[size, error.value] for size, error in results.points],
        "exponent": exponent and exponent.value,
        "exponent_low": None if exponent is None or math.isinf(exponent.low) else exponent.low,
        "exponent_high": exponent and exponent.high,
        "predictions": [
            {"factor": factor, **results.predict(law, factor)._asdict()} for factor in FACTORS if law is not None
        ],
    }
