"""Numbers of a report, from which its tables, plots and JSON are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.experiments.report.cells import ReportCell, are_equal, make_cells
from cli.experiments.report.comparison import Difference, choose_bases, compute_difference, plan_comparison
from cli.experiments.report.courses import (
    Reached,
    TrainingCurve,
    average_courses,
    choose_target,
    measure_ways,
    name_series,
)
from cli.experiments.report.critical_batch import CriticalBatchFit, NoiseScale, find_median_noise, fit_critical_batch
from cli.experiments.report.load import LoadedResults
from cli.experiments.report.scores import MeasuredScores, find_missing_scores, measure_scores
from dlrm.record import SHARPNESS_FIGURES
from dlrm.record.intervals import Estimate, estimate_mean


@dataclass(frozen=True)
class ReportOptions:
    """Choices of who asks for a report."""

    bases: Sequence[str] = ()
    """Methods that the others are compared with."""
    base_cell: str | None = None
    """Compared values of the one cell that all are compared with; None: the cell with the same values."""
    target_auc: float | None = None
    """AUC to which steps and samples are counted; None: the highest AUC that every trial reaches."""


@dataclass(frozen=True)
class MainRow:
    """One cell with its final metrics on the evaluation rows."""

    cell: ReportCell
    auc: Estimate | None
    log_loss: Estimate | None
    train_auc_gap: Estimate | None
    """AUC on training rows less the AUC on evaluation rows; None if trials do not report it."""
    sharpness: Mapping[str, Estimate]
    """Figures of `run.sharpness` by name, those that all trials report."""


@dataclass(frozen=True)
class Scaling:
    """Way of one method to the target, over its batches."""

    series: str
    reached: Sequence[Reached]
    fit: CriticalBatchFit | None
    """Fit to the batches whose every seed reaches the target; None for too few batches."""
    fit_without_largest: CriticalBatchFit | None
    """The same without the largest batch, to see how far the fit depends on it; None for too few batches."""
    noise_scale: NoiseScale | None
    """Median of the noise scales that the runs themselves have reported; None if none has."""


@dataclass(frozen=True)
class LengthGroup:
    """Cells whose runs have the same length."""

    length: float
    """Number of samples, or of steps."""
    labels: Sequence[str]


@dataclass(frozen=True)
class SweepReport:
    """All numbers of a report."""

    loaded: LoadedResults
    options: ReportOptions
    rows: Sequence[MainRow]
    differences: Sequence[Difference]
    target_auc: float | None
    """AUC to which steps and samples are counted; None if no trial has evaluations."""
    scalings: Sequence[Scaling]
    growing: Sequence[Reached]
    """Ways to the target of the cells whose batch grows; they are no points of a line over batches."""
    sample_groups: Sequence[LengthGroup]
    step_groups: Sequence[LengthGroup]
    num_row_sets: int
    """Number of different sets of evaluation rows, by kept scores and numbers of rows."""
    num_data_sets: int
    """Number of different sets of prepared rows that the trials were trained on, as far as it is known."""
    broken_files: Sequence[str]
    """Files of scores that cannot be used, each with the reason."""
    courses: Sequence[TrainingCurve]
    """Courses of the cells whose trials have evaluations."""

    @property
    def cells(self) -> list[ReportCell]:
        """Cells in the order of the main table."""
        return [row.cell for row in self.rows]


def compute_report(loaded: LoadedResults, options: ReportOptions) -> SweepReport:
    """Compute the numbers of a report. Raises BadInputError, CommandError and ProgramStopped."""
    cells = make_cells(loaded)
    missing = find_missing_scores(cells)
    comparisons = [plan_comparison(*pair, missing) for pair in choose_bases(cells, options.bases, options.base_cell)]
    pairs = [pair for comparison in comparisons if comparison.is_on_rows for pair in comparison.pairs]
    measured = measure_scores(cells, pairs, missing)
    target = choose_target(cells) if options.target_auc is None else options.target_auc
    ways = [] if target is None else measure_ways(cells, target)
    results = [trial.result for cell in cells for trial in cell.trials]
    checksums = {result.scores.checksum for result in results if result.scores}
    row_counts = {count for result in results if (count := result.metrics.get("num_rows")) is not None}
    return SweepReport(
        loaded=loaded,
        options=options,
        rows=[_make_row(cell, measured) for cell in cells],
        differences=[compute_difference(comparison, measured) for comparison in comparisons],
        target_auc=target,
        scalings=_make_scalings([way for way in ways if way.batch]),
        growing=[way for way in ways if way.cell.batch.is_growing],
        sample_groups=_group_by_length(cells, "num_samples"),
        step_groups=_group_by_length(cells, "num_steps"),
        num_row_sets=max(len(checksums), len(row_counts)),
        num_data_sets=len({result.data_checksum for result in results if result.data_checksum is not None}),
        broken_files=sorted({*measured.faults.values()}),
        courses=average_courses(cells),
    )


def _make_row(cell: ReportCell, measured: MeasuredScores) -> MainRow:
    aucs, losses = cell.list_values("auc"), cell.list_values("log_loss")
    auc_errors = cell.list_values("auc_standard_error")
    key = cell.trials[0].result.key if cell.trials else ""
    gaps = _list_gaps(cell)
    return MainRow(
        cell,
        estimate_mean(aucs, auc_errors[0] if auc_errors else None) if aucs else None,
        estimate_mean(losses, measured.log_loss_errors.get(key)) if losses else None,
        estimate_mean(gaps) if gaps else None,
        {name: estimate_mean(values) for name in SHARPNESS_FIGURES if (values := cell.list_values(name))},
    )


def _list_gaps(cell: ReportCell) -> list[float]:
    """List the gap of each trial, by the kept model, or else by the last evaluation; empty if one has none."""
    gaps: list[float] = []
    for trial in cell.trials:
        metrics, curve = trial.result.metrics, trial.result.curve
        both = metrics.get("train_auc"), metrics.get("auc")
        if both[0] is None and curve:
            both = curve[-1].train_auc, curve[-1].auc
        train, evaluation = both
        if train is None or evaluation is None:
            return []
        gaps.append(train - evaluation)
    return gaps


def _make_scalings(reached: Sequence[Reached]) -> list[Scaling]:
    scalings: list[Scaling] = []
    for series in dict.fromkeys(name_series(point.cell) for point in reached):
        own = sorted((point for point in reached if name_series(point.cell) == series), key=lambda point: point.batch)
        whole = {point.batch: [crossing.samples for crossing in point.crossings] for point in own if point.is_whole}
        others = {batch: samples for batch, samples in whole.items() if batch != max(whole)}
        noise_scale = find_median_noise(trial.result for point in own for trial in point.cell.trials)
        scalings.append(Scaling(series, own, fit_critical_batch(whole), fit_critical_batch(others), noise_scale))
    return scalings


def _group_by_length(cells: Sequence[ReportCell], field: str) -> list[LengthGroup]:
    """Group cells whose numbers of samples, or of steps, are equal within the tolerance; the shortest runs first."""
    lengths = sorted(
        ((length, cell) for cell in cells if (length := cell.compute_mean(field)) is not None), key=lambda pair: pair[0]
    )
    groups: list[list[tuple[float, ReportCell]]] = []
    for length, cell in lengths:
        if groups and are_equal(groups[-1][0][0], length):
            groups[-1].append((length, cell))
        else:
            groups.append([(length, cell)])
    return [LengthGroup(group[0][0], [cell.label for _, cell in group]) for group in groups]
