"""Sections of a report about the batch: AUC and log-loss, and steps and samples to a target AUC."""

import math
from collections.abc import Callable, Sequence

from cli.experiments.report.cells import ReportCell
from cli.experiments.report.content import Block, Notes, Paragraph, Plot, Section, Table
from cli.experiments.report.courses import Reached, name_series
from cli.experiments.report.critical_batch import AGREEMENT_FACTOR, MIN_BATCHES, CriticalBatchFit, decide_agreement
from cli.experiments.report.figures import DIGITS, format_batch, format_count, format_noise, format_rough
from cli.experiments.report.numbers import MainRow, Scaling, SweepReport
from cli.experiments.report.plot import Axis, Point, Series, make_plot
from cli.local.console import UNKNOWN
from dlrm.record.intervals import Estimate

NUM_CURVE_POINTS = 40
_FIT_NOTE = (
    "Fit: samples(B) = samples_min (1 + B / B_crit), and so steps(B) = steps_min (1 + B_crit / B) (McCandlish et al. "
    "2018, arXiv 1812.06162, equation 2.11), by least squares in logarithms. Its 95 % interval is "
    "Student's, by the scatter of seeds pooled over the batches; it tells nothing of whether batches lie on the "
    "curve. Perfect scaling: as many samples as at the smallest batch."
)
_NOISE_NOTE = (
    "Noise scale: the median over the runs at their end; one in which noise hides the gradient has a lower bound "
    "alone, and counts as above it."
)


def make_scaling_sections(report: SweepReport) -> list[Section]:
    """Make the sections of AUC and log-loss against batch, and of steps and samples to the target."""
    return [Section("AUC and log-loss by batch", _make_auc_blocks(report.rows)), _make_target_section(report)]


def _make_auc_blocks(rows: Sequence[MainRow]) -> list[Block]:
    plots = (
        make_batch_plot("auc", "AUC by batch", "AUC", rows, lambda row: row.auc),
        make_batch_plot("log-loss", "Log-loss by batch", "log-loss", rows, lambda row: row.log_loss),
    )
    drawn = [plot for plot in plots if plot is not None]
    if not drawn:
        return [Paragraph("No plot: there are no results of two constant batches.")]
    left_out = _list_growing([row.cell for row in rows], "the plots")
    return [*drawn, Paragraph("Bars are the 95 % intervals of the first table."), *left_out]


def make_batch_plot(
    name: str, title: str, axis: str, rows: Sequence[MainRow], metric: Callable[[MainRow], Estimate | None]
) -> Plot | None:
    """Plot a metric with its intervals against the batch, without batches that grow; None if there is one batch alone.

    name: see `Plot.name`. axis: title of the axis of the metric.
    """
    lines: dict[str, list[Point]] = {}
    for row in rows:
        estimate, batch = metric(row), row.cell.batch.constant_size
        if estimate is not None and batch is not None:
            point = Point(batch, estimate.value, estimate.low, estimate.high)
            lines.setdefault(name_series(row.cell), []).append(point)
    if len({point.x for line in lines.values() for point in line}) < 2:
        return None
    return make_plot(
        name,
        title,
        f"{axis} against the batch, of {', '.join(lines)}; the numbers are in a table.",
        Axis("batch, samples", "batch"),
        Axis(axis),
        [Series(method, line, colour=number) for number, (method, line) in enumerate(lines.items())],
    )


def _list_growing(cells: Sequence[ReportCell], where: str) -> list[Block]:
    """List the results without a single batch, which `where`, such as "the plots", leaves out."""
    growing = [cell.label for cell in cells if cell.batch.is_growing]
    return [Paragraph(f"Left out of {where}, since their batch grows: {'; '.join(growing)}.")] if growing else []


def _make_target_section(report: SweepReport) -> Section:
    heading = "Steps and samples to a target AUC"
    if report.target_auc is None:
        return Section(heading, [Paragraph("No trial has evaluations with an AUC in its course.")])
    if not report.scalings and not report.growing:
        return Section(heading, [Paragraph("No result is of a batch that is known.")])
    rule = "as given" if report.options.target_auc is not None else "the highest one that every trial here reaches"
    blocks: list[Block] = [
        Paragraph(
            f"Target AUC: {report.target_auc:.{DIGITS}f}, {rule}. Steps and samples are interpolated linearly between "
            "the last evaluation below the target and the next one; means over seeds are geometric. Runs whose "
            "learning rate falls to 0 at their end reach a target later than runs that are planned to end there."
        ),
        *_make_plots(report.scalings),
        _make_target_table(report.scalings, report.growing),
    ]
    if report.scalings:
        left_out = _list_growing([reached.cell for reached in report.growing], "plots and fits")
        blocks += [*left_out, *_make_fit_blocks(report.scalings)]
    return Section(heading, blocks)


def _make_plots(scalings: Sequence[Scaling]) -> list[Plot]:
    batches = [point.batch for scaling in scalings for point in scaling.reached if point.samples is not None]
    if len(set(batches)) < 2:
        return []
    return [_make_target_plot(scalings, "steps"), _make_target_plot(scalings, "samples")]


def _make_target_plot(scalings: Sequence[Scaling], quantity: str) -> Plot:
    is_steps = quantity == "steps"
    series: list[Series] = []
    for number, scaling in enumerate(scalings):
        points = [
            Point(point.batch, point.steps if is_steps else point.samples)
            for point in scaling.reached
            if point.steps is not None and point.samples is not None
        ]
        if not points:
            continue
        series.append(Series(scaling.series, points, "points" if scaling.fit is None else "marks", number))
        low, high = points[0].x, points[-1].x
        if len(points) > 1:
            perfect = [Point(end, points[0].y * (low / end if is_steps else 1.0)) for end in (low, high)]
            series.append(Series(f"{scaling.series}, perfect", perfect, "dashed", number))
        if scaling.fit is not None:
            compute = scaling.fit.compute_steps if is_steps else scaling.fit.compute_samples
            places = [low * (high / low) ** (part / NUM_CURVE_POINTS) for part in range(NUM_CURVE_POINTS + 1)]
            critical = "" if scaling.fit.is_at_limit else f", B_crit {format_rough(scaling.fit.critical_batch)}"
            fitted = [Point(place, compute(place)) for place in places]
            series.append(Series(f"{scaling.series}, fit{critical}", fitted, "line", number))
    return make_plot(
        f"{quantity}-to-target",
        f"{quantity.capitalize()} to the target AUC by batch",
        f"{quantity.capitalize()} to the target AUC against the batch, with the line of perfect scaling and the fit; "
        "the numbers are in the table.",
        Axis("batch, samples", "batch"),
        Axis(f"{quantity} to the target", "log"),
        series,
    )


def _make_target_table(scalings: Sequence[Scaling], growing: Sequence[Reached]) -> Table:
    headings = [
        "method",
        "batch",
        "steps",
        "samples",
        "samples, of the smallest batch's",
        "seeds",
        "seeds without a figure",
    ]
    rows: list[list[str]] = []
    for scaling in scalings:
        known = [point.samples for point in scaling.reached if point.samples is not None]
        for point in scaling.reached:
            ratio = UNKNOWN if point.samples is None or len(known) < 2 else f"{point.samples / known[0]:.2f}"
            rows.append(_make_target_row(scaling.series, point, ratio))
    rows += [_make_target_row(reached.cell.label, reached, UNKNOWN) for reached in growing]
    caption, texts = (
        "Steps and samples to the target, where every seed reaches it",
        ["method", "seeds without a figure"],
    )
    return Table(caption, headings, rows, texts).drop_unknown_columns()


def _make_target_row(name: str, reached: Reached, ratio: str) -> list[str]:
    missed = ", ".join(f"{count} {reason}" for reason, count in reached.misses.items())
    return [
        name,
        format_batch(reached.cell.batch),
        format_count(reached.steps),
        format_count(reached.samples),
        ratio,
        f"{len(reached.crossings)}/{reached.cell.num_seeds}",
        missed or "0",
    ]


def _make_fit_blocks(scalings: Sequence[Scaling]) -> list[Block]:
    """Make the table of known fits and noise scales, with its meaning and how it is made."""
    is_fitted = any(scaling.fit is not None for scaling in scalings)
    is_measured = any(scaling.noise_scale is not None for scaling in scalings)
    notes = [*([_FIT_NOTE] if is_fitted else []), *([_NOISE_NOTE] if is_measured else [])]
    table = [_make_fit_table(scalings)] if notes else []
    return [*table, Notes(_describe_fits(scalings)), *([Paragraph(" ".join(notes))] if notes else [])]


def _make_fit_table(scalings: Sequence[Scaling]) -> Table:
    headings = ["method", "B_crit", "95 % interval", "samples_min", "steps_min", "noise scale of the runs"]
    rows: list[list[str]] = []
    for scaling in scalings:
        fit = scaling.fit
        if fit is None or fit.is_at_limit:
            interval, values = UNKNOWN, (None, None, None)
        else:
            interval = _format_interval(fit.low, fit.high)
            values = (fit.critical_batch, fit.min_samples, fit.min_steps)
        critical, samples, steps = map(format_rough, values)
        rows.append([scaling.series, critical, interval, samples, steps, format_noise(scaling.noise_scale)])
    is_fitted = any(scaling.fit is not None for scaling in scalings)
    caption = "Fitted critical batch, in samples" if is_fitted else "Noise scale of the runs, in samples"
    return Table(caption, headings, rows).drop_unknown_columns()


def _format_interval(low: float | None, high: float | None) -> str:
    if low is None or high is None or (low == 0.0 and math.isinf(high)):
        return UNKNOWN
    if low == 0.0:
        return f"below {format_rough(high)}"
    return f"above {format_rough(low)}" if math.isinf(high) else f"{format_rough(low)} to {format_rough(high)}"


def _describe_fits(scalings: Sequence[Scaling]) -> list[str]:
    """Describe each fit in a sentence, and the missing ones in another."""
    sentences = [_describe_fit(scaling, scaling.fit) for scaling in scalings if scaling.fit is not None]
    too_few = [
        f"{scaling.series} {sum(point.is_whole for point in scaling.reached)}"
        for scaling in scalings
        if scaling.fit is None
    ]
    if too_few:
        sentences.append(
            f"Too few batches for a fit, of at least {MIN_BATCHES} with every seed at the target: {', '.join(too_few)}."
        )
    return sentences


def _describe_fit(scaling: Scaling, fit: CriticalBatchFit) -> str:
    """Describe in a sentence whether the fit and the noise scale agree, or why it cannot be decided."""
    name, noise = scaling.series, scaling.noise_scale
    if fit.is_at_limit:
        smallest = min(point.batch for point in scaling.reached)
        where = "below" if fit.critical_batch < smallest else "above"
        return f"{name}: the critical batch is far {where} all batches that were tried, which tell no more of it."
    lone = "" if fit.low is not None else " A batch has one seed, so that there is no interval, and no verdict."
    told = f"{name}: the critical batch is about {format_rough(fit.critical_batch)}{_describe_other(scaling)}."
    if noise is None:
        return f"{told} No run has told its noise scale.{lone}"
    both = f"the noise scale of the runs, {format_noise(noise)} (median of the runs at their end)"
    within = f"agree within a factor of {AGREEMENT_FACTOR:.0f}"
    apart = "" if noise.value is None else f": they are {_format_factor(fit.critical_batch / noise.value)} apart"
    agreement = decide_agreement(fit, noise)
    if agreement == "open":
        return f"{told} Whether it and {both}, {within} cannot be told{apart}.{lone}"
    return f"{told} It and {both}, {'' if agreement == 'agree' else 'do not '}{within}{apart}."


def _describe_other(scaling: Scaling) -> str:
    """Describe the fit without its largest batch, as the rest of a sentence; empty for too few batches.

    A single batch with few steps may rule the fit, and its interval, over seeds, does not show it.
    """
    other = scaling.fit_without_largest
    if other is None:
        return ""
    interval = _format_interval(other.low, other.high)
    told = "not known" if other.is_at_limit else format_rough(other.critical_batch)
    bounds = "" if other.is_at_limit or interval == UNKNOWN else f" ({interval})"
    return f"; without the largest batch of the fit it would be {told}{bounds}"


def _format_factor(ratio: float) -> str:
    """Return a factor above 1 with two decimals, rounded up, so that none above a bound is shown as the bound."""
    return f"a factor of {math.ceil(100.0 * max(ratio, 1.0 / ratio) - 1e-9) / 100.0:.2f}"
