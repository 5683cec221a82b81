"""Sections of a report about the results: the main table, the differences to the base, the lengths of the runs."""

from collections.abc import Sequence

from cli.experiments.report.cells import ReportCell, count_unstarted
from cli.experiments.report.comparison import Difference
from cli.experiments.report.content import Block, Notes, Paragraph, Section, Table
from cli.experiments.report.figures import (
    ROWS_MARK,
    SEEDS_MARK,
    format_batch,
    format_count,
    format_difference,
    format_estimate,
    format_seconds,
)
from cli.experiments.report.numbers import LengthGroup, MainRow, SweepReport
from cli.experiments.trials.fields import format_settings, format_value, shorten_fields
from cli.local.console import UNKNOWN

UNEQUAL_MARK = "≠"
"""Mark of a comparison of runs with unequal numbers of samples."""


def make_result_sections(report: SweepReport) -> list[Section]:
    """Make the sections of the results, the differences and the lengths."""
    return [_make_main_section(report), _make_difference_section(report), _make_length_section(report)]


def _make_main_section(report: SweepReport) -> Section:
    compare = report.loaded.compare
    setting = "best setting" if any(cell.is_chosen for cell in report.cells) else "setting"
    headings = [
        *("method", *shorten_fields(compare).values()),
        *("AUC", "log-loss", "seeds", "diverged", setting, "edge of grid"),
        *("batch", "steps", "samples", "CPU seconds", "samples/s"),
    ]
    texts = {"method", setting, "edge of grid"}
    rows = [_make_main_row(row) for row in report.rows]
    table = Table("AUC and log-loss on the evaluation rows", headings, rows, texts)
    intervals = (
        "±: 95 % interval of the mean over seeds by Student's t distribution, with one degree of freedom fewer than "
        "seeds; it covers the chance of training, not that of the evaluation rows, which all have in common."
    )
    lone = (
        f"{ROWS_MARK}: one seed; the interval is 1.96 standard errors over samples of evaluation rows alone (for the "
        "AUC by DeLong et al. 1988), and says nothing of other seeds."
    )
    sources = {estimate.source for row in report.rows for estimate in (row.auc, row.log_loss) if estimate is not None}
    legend = [note for note, source in ((intervals, "seeds"), (lone, "rows")) if source in sources]
    notes = [*legend, *_list_warnings(report)]
    return Section("Results", [table, Notes(notes)])


def _make_main_row(row: MainRow) -> list[str]:
    cell = row.cell
    return [
        cell.method,
        *map(format_value, cell.compared.values()),
        format_estimate(row.auc),
        format_estimate(row.log_loss),
        f"{len(cell.trials)}/{cell.num_seeds + cell.num_missing_seeds}" if cell.num_seeds else UNKNOWN,
        str(cell.num_diverged),
        describe_choice(cell),
        ", ".join(cell.edges) or ("no" if cell.is_chosen else UNKNOWN),
        format_batch(cell.batch),
        format_count(cell.compute_mean("num_steps")),
        format_count(cell.compute_mean("num_samples")),
        format_seconds(cell.compute_cpu_seconds()),
        format_count(cell.compute_speed()),
    ]


def describe_choice(cell: ReportCell) -> str:
    """Describe the best or only setting of a cell, or why there is none."""
    if cell.settings is None:
        is_known = cell.num_diverged and not cell.num_missing and not cell.is_open
        return "not known yet" if not is_known else "all diverged" if cell.is_chosen else "diverged"
    so_far = " so far" if cell.is_open and not cell.is_confirmed else ""
    return (format_settings(cell.settings) or "the only one") + so_far


def _list_warnings(report: SweepReport) -> list[str]:
    """List what a reader of the table must know."""
    lines: list[str] = []
    unconfirmed = [cell.label for cell in report.cells if cell.trials and cell.is_chosen and not cell.is_confirmed]
    if unconfirmed:
        which = "No result is confirmed" if len(unconfirmed) == len(report.cells) else "Not confirmed: "
        named = "" if len(unconfirmed) == len(report.cells) else "; ".join(unconfirmed)
        lines.append(
            f"{which}{named}: the seeds that chose the best setting are the result too, which favours it a little."
        )
    for cell in report.cells:
        if cell.trials and len(cell.trials) < cell.num_seeds:
            lines.append(
                f"{cell.label}: only {len(cell.trials)} of {cell.num_seeds} seeds are done; their mean may favour it, "
                "since seeds that diverge are not in it."
            )
        if cell.num_missing:
            at_least = "at least " if cell.is_open else ""
            changes = "; another setting may come out as the best" if cell.is_open else ""
            lines.append(f"{cell.label}: trials left: {at_least}{cell.num_missing}{changes}.")
        if cell.edges:
            lines.append(
                f"{cell.label}: at the edge of its grid ({', '.join(cell.edges)}); a better value may be beyond."
            )
        if cell.num_failed:
            lines.append(f"{cell.label}: {cell.num_failed} failed, which the sweep tries again.")
    if unstarted := count_unstarted(report.loaded):
        told = "; ".join(f"{label} ({number})" for label, number in unstarted.items())
        lines.append(f"No trial has ended yet, with the number that is left at least, of {told}.")
    efforts = {cell.num_settings for cell in report.cells}
    if len(efforts) > 1:
        told = "; ".join(f"{cell.label} {cell.num_settings}" for cell in report.cells)
        lines.append(f"Unequal numbers of settings were tried, and the best of more looks better: {told}.")
    if report.num_row_sets > 1:
        lines.append("The trials were evaluated on different rows: their means are not comparable as they stand.")
    if report.num_data_sets > 1:
        lines.append("The trials were trained on different rows, as where data files change between two commands.")
    lines.extend(f"Not used: {file}." for file in report.broken_files)
    if report.loaded.num_replaced:
        lines.append(f"Lines that do not count, since the same trial has a later one: {report.loaded.num_replaced}.")
    if report.loaded.num_unasked:
        lines.append(
            "Lines that do not count, since the document of the sweep does not ask for their trials, or not yet: "
            f"{report.loaded.num_unasked}."
        )
    return lines


def _make_difference_section(report: SweepReport) -> Section:
    heading = "Differences to the base"
    if not report.differences:
        names = " or ".join(report.options.bases)
        text = f"No other results to compare {names} with." if names else "No base is chosen: --base METHOD."
        return Section(heading, [Paragraph(text)])
    headings = ["method and values", "base", "AUC", "log-loss", "seeds in common", "paired by rows", "what is told"]
    table = Table(
        "Metrics less those of the base, on the evaluation rows",
        headings,
        [_make_difference_row(difference) for difference in report.differences],
        texts=["method and values", "base", "paired by rows", "what is told"],
    )
    return Section(heading, [table, Notes(_list_difference_notes(report.differences))])


def _make_difference_row(difference: Difference) -> list[str]:
    comparison = difference.comparison
    unequal = "" if comparison.inequality is None else f" {UNEQUAL_MARK} {comparison.inequality}"
    is_refused = comparison.refusal is not None
    return [
        comparison.cell.label,
        comparison.base.label,
        format_difference(difference.auc),
        format_difference(difference.log_loss),
        UNKNOWN if is_refused else str(len(comparison.pairs)),
        UNKNOWN if is_refused else "yes" if comparison.row_refusal is None else f"no: {comparison.row_refusal}",
        f"{difference.verdict}{unequal}",
    ]


def _list_difference_notes(differences: Sequence[Difference]) -> list[str]:
    estimates = [estimate for one in differences for estimate in (one.auc, one.log_loss) if estimate is not None]
    sources = {estimate.source for estimate in estimates}
    notes = ["Each seed of a method is paired with the same seed of the base."]
    if any(difference.comparison.is_on_rows for difference in differences):
        notes.append(
            "Paired by rows: each evaluation row with itself, by the paired test of DeLong et al. 1988 for the AUC, by "
            "the standard error of the differences of single rows for the log-loss."
        )
    if "seeds and rows" in sources:
        notes.append(
            "±: 95 % interval of at least that coverage (Banerjee 1960): the square of its half width is that of "
            "Student's interval over seeds plus that of the normal interval over evaluation rows, which does not "
            "shrink with seeds, since they share the rows."
        )
    if "rows" in sources:
        notes.append(f"{ROWS_MARK}: one seed in common; the interval covers the choice of evaluation rows alone.")
    if "seeds" in sources:
        notes.append(
            f"{SEEDS_MARK}: not paired by rows; the interval is Student's over seeds alone, so that other evaluation "
            "rows may show another difference."
        )
    if any(estimate.half_width is not None for estimate in estimates):
        notes.append("Intervals are not adjusted for the number of comparisons.")
    if any(difference.comparison.inequality for difference in differences):
        notes.append(
            f"{UNEQUAL_MARK}: unequal numbers of samples, so that the difference is also one of the length of the runs."
        )
    return notes


def _make_length_section(report: SweepReport) -> Section:
    blocks: list[Block] = [
        Paragraph(
            "Methods are compared at equal samples, or at equal steps, which is another question: at equal steps a "
            "larger batch sees more samples. Numbers within 1 % of each other are equal."
        )
    ]
    for name, groups in (("samples", report.sample_groups), ("steps", report.step_groups)):
        if groups:
            blocks.append(_make_length_table(name, groups))
    if len(report.sample_groups) > 1:
        blocks.append(
            Notes(["Not all results have the same number of samples: compare within a row of the first table."])
        )
    return Section("Length of the runs", blocks)


def _make_length_table(name: str, groups: Sequence[LengthGroup]) -> Table:
    rows = [[format_count(group.length), "; ".join(group.labels)] for group in groups]
    return Table(f"Results with equal numbers of {name}", [name, "results"], rows, ["results"])
