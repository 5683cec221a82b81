"""Whole content of a report, with the sections on the course of training, the gap, the cost, and every trial."""

import re
from collections.abc import Mapping, Sequence

from cli.experiments.report.content import Block, Page, Paragraph, Plot, Section, Table
from cli.experiments.report.courses import CoursePoint, TrainingCurve
from cli.experiments.report.figures import DIGITS, format_count, format_difference, format_estimate, format_seconds
from cli.experiments.report.load import LoadedTrial
from cli.experiments.report.numbers import MainRow, SweepReport
from cli.experiments.report.plot import Axis, Point, Series, make_plot
from cli.experiments.report.power_laws import make_power_law_sections
from cli.experiments.report.result_sections import make_result_sections
from cli.experiments.report.scaling_sections import make_batch_plot, make_scaling_sections
from cli.experiments.trials.fields import format_settings, format_value
from cli.experiments.trials.results import ASKED_FILE_NAME, Environment
from cli.local.console import UNKNOWN
from dlrm.record import SHARPNESS_FIGURES
from hostinfo.sizes import format_size

MAX_MARKS = 25
"""Number of evaluations up to which each has a mark."""
_METRICS = (
    ("auc", "AUC", "AUC on evaluation rows"),
    ("log_loss", "Log-loss", "log-loss on evaluation rows"),
    ("train_auc_gap", "Gap of AUC to training rows", "gap of AUC to training rows"),
)
"""Metrics of `TrainingCurve`, each with the title of its plot and the title of the axis."""


def make_page(report: SweepReport, title: str) -> Page:
    """Make the content of a report."""
    num_trials, num_files = len(report.loaded.trials), len(report.loaded.files)
    results = "one file of results" if num_files == 1 else f"{num_files} files of results"
    compared = ", ".join(report.loaded.compare)
    across = f", at each value of {compared}" if compared else ""
    trials = "1 trial" if num_trials == 1 else f"{num_trials:,} trials"
    lead = f"{trials} of a sweep, from {results}. {_describe_choice(report, across)}"
    sections = [
        *make_result_sections(report),
        _make_course_section(report.courses),
        *make_scaling_sections(report),
        *make_power_law_sections(report.rows),
        _make_gap_section(report.rows),
        *_make_sharpness_sections(report.rows),
        _make_cost_section(report),
        _make_trial_section(report),
    ]
    return Page(title, lead, sections)


def _describe_choice(report: SweepReport, across: str) -> str:
    cells = report.cells
    if report.loaded.unlisted:
        kind = "Best setting" if any(cell.is_chosen for cell in cells) else "The only setting"
        return (
            f"{kind} of each method{across} among these results: {ASKED_FILE_NAME}, which says what the sweep asks "
            "for, is not beside them, so that it is not known whether trials are left."
        )
    if any(cell.is_open for cell in cells):
        return f"Best setting so far of each method{across}, as the validation rows choose it: not all trials have run."
    if any(cell.is_chosen for cell in cells):
        return f"Best setting of each method{across}, as the validation rows choose it."
    return f"Each method has one setting{across}, so that nothing is chosen by these results."


def _make_course_section(courses: Sequence[TrainingCurve]) -> Section:
    """Make the section of the courses: for each combination of compared values a plot of each metric."""
    heading = "Course of training"
    if not courses:
        return Section(heading, [Paragraph("No trial has evaluations in its course.")])
    groups: dict[str, list[TrainingCurve]] = {}
    for course in courses:
        groups.setdefault(format_settings(course.cell.compared), []).append(course)
    suffixes = [_make_suffix(group[0]) for group in groups.values()]
    if len(set(suffixes)) < len(suffixes):
        suffixes = [f"-{number}" for number in range(1, len(groups) + 1)]
    # A method has the same colour in all plots, also if another one has no result.
    colours = {method: number for number, method in enumerate(dict.fromkeys(course.cell.method for course in courses))}
    plots = [
        plot
        for (values, group), suffix in zip(groups.items(), suffixes, strict=True)
        for metric in _METRICS
        if (plot := _make_course_plot(group, colours, *metric, values, suffix)) is not None
    ]
    note = (
        "Means over the trials of the first table, of the model in training, whose last evaluation need not be that of "
        "the kept model. The curve of a seed is linear between two evaluations; a mean ends with the shortest one."
    )
    blocks: list[Block] = [*plots, Paragraph(note)]
    return Section(heading, blocks)


def _make_course_plot(
    courses: Sequence[TrainingCurve],
    colours: Mapping[str, int],
    metric: str,
    title: str,
    axis: str,
    values: str,
    suffix: str,
) -> Plot | None:
    lines: dict[str, Sequence[CoursePoint]] = {course.cell.method: getattr(course, metric) for course in courses}
    if len({samples for line in lines.values() for samples, _ in line}) < 2:
        return None
    most = max(map(len, lines.values()))
    where = f", {values}" if values else ""
    return make_plot(
        f"{metric.replace('_', '-')}-by-samples{suffix}",
        f"{title} by samples{where}",
        f"{axis} against training samples{where}, of {', '.join(lines)}; means over seeds.",
        Axis("samples", "count"),
        Axis(axis),
        [
            Series(name, [Point(*point) for point in line], "points" if most <= MAX_MARKS else "line", colours[name])
            for name, line in lines.items()
            if line
        ],
    )


def _make_suffix(course: TrainingCurve) -> str:
    words = "-".join(map(format_value, course.cell.compared.values()))
    letters = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
    return f"-{letters}" if letters else ""


def _make_gap_section(rows: Sequence[MainRow]) -> Section:
    heading = "Gap between training and evaluation rows"
    known = [row for row in rows if row.train_auc_gap is not None]
    if not known:
        text = "No trial reports an AUC on training rows: run.num_train_eval_rows of the job document makes them do so."
        return Section(heading, [Paragraph(text)])
    table = Table(
        "AUC on training rows less AUC on evaluation rows",
        ["result", "AUC on evaluation rows", "gap"],
        [
            [row.cell.label, format_estimate(row.auc), format_difference(row.train_auc_gap, is_paired=False)]
            for row in known
        ],
        texts=["result"],
    )
    plot = make_batch_plot(
        "train-auc-gap",
        "Gap by batch",
        "gap of AUC to training rows",
        rows,
        lambda row: row.train_auc_gap,
    )
    note = Paragraph("±: 95 % interval over seeds by Student's t distribution.")
    return Section(heading, [*([] if plot is None else [plot]), table, note])


def _make_sharpness_sections(rows: Sequence[MainRow]) -> list[Section]:
    known = [row for row in rows if row.sharpness]
    if not known:
        return []
    table = Table(
        "Sharpness of the loss around the dense parameters, and gaps between training and evaluation rows",
        ["result", *SHARPNESS_FIGURES.values()],
        [[row.cell.label, *(format_estimate(row.sharpness.get(name)) for name in SHARPNESS_FIGURES)] for row in known],
        texts=["result"],
    )
    note = Paragraph("Of the sample of run.sharpness; ±: 95 % interval over seeds by Student's t distribution.")
    return [Section("Sharpness", [table.drop_unknown_columns(), note])]


def _make_cost_section(report: SweepReport) -> Section:
    methods: dict[str, list[LoadedTrial]] = {}
    for trial in report.loaded.trials:
        methods.setdefault(trial.result.method, []).append(trial)
    headings = ["method", "trials", "samples", "CPU seconds", "seconds", "CPU seconds per million samples"]
    rows: list[list[str]] = []
    for method, trials in methods.items():
        results = [trial.result for trial in trials]
        known = [
            (result.cpu_seconds, result.num_samples)
            for result in results
            if result.cpu_seconds is not None and result.num_samples
        ]
        cpu_seconds, samples = sum(seconds for seconds, _ in known), sum(number for _, number in known)
        rows.append(
            [
                method,
                format_count(len(trials)),
                format_count(sum(result.num_samples or 0 for result in results)),
                format_seconds(cpu_seconds) if known else UNKNOWN,
                format_seconds(sum(result.seconds for result in results)),
                format_seconds(1e6 * cpu_seconds / samples) if known else UNKNOWN,
            ]
        )
    table = Table("All trials of each method", headings, rows)
    note = (
        "CPU seconds are those of the trials that tell them: of runs on the machine of the sweep that were not "
        "interrupted and have not prepared the rows for the others."
    )
    return Section("Cost", [table, Paragraph(note)])


def _make_trial_section(report: SweepReport) -> Section:
    trials = report.loaded.trials
    environments = list(dict.fromkeys(_describe_environment(trial.result.environment) for trial in trials))
    headings = [
        *("method", "values", "settings", "stage", "seed", "outcome", "AUC", "log-loss", "validation log-loss"),
        *("steps", "samples", "CPU seconds", "machine", "left open by the document", "ended", "key"),
    ]
    texts = {"method", "values", "settings", "stage", "outcome", "left open by the document", "ended", "key"}
    rows = [
        _make_trial_row(trial, environments.index(_describe_environment(trial.result.environment)) + 1)
        for trial in trials
    ]
    machines = Table(
        "Versions and hardware",
        ["machine", "versions", "hardware"],
        [[str(number), *environment] for number, environment in enumerate(environments, 1)],
        texts=["versions", "hardware"],
    )
    return Section(
        "All trials, with versions and hardware",
        [Table("Trials", headings, rows, texts).drop_unknown_columns(), machines],
        is_folded=True,
    )


def _make_trial_row(trial: LoadedTrial, machine: int) -> list[str]:
    result = trial.result
    stage = result.stage if result.fraction == 1.0 else f"{result.stage}, {result.fraction:.3g} of the epochs"
    return [
        result.method,
        format_settings(result.compared) or UNKNOWN,
        format_settings(result.settings) or UNKNOWN,
        stage,
        str(result.seed),
        ": ".join(part for part in (result.outcome, result.message) if part),
        *(_format_metric(result.metrics.get(name)) for name in ("auc", "log_loss", "validation_log_loss")),
        format_count(result.num_steps),
        format_count(result.num_samples),
        format_seconds(result.cpu_seconds),
        str(machine),
        ", ".join(f"{field} {format_value(value)}" for field, value in result.decided.items()) or UNKNOWN,
        result.finished_at or UNKNOWN,
        result.key,
    ]


def _format_metric(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.{DIGITS}f}"


def _describe_environment(environment: Environment | None) -> tuple[str, str]:
    if environment is None:
        return UNKNOWN, "not known: another machine"
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    hardware = [
        environment.processor,
        None if environment.num_cores is None else f"{environment.num_cores} cores",
        None if environment.memory_bytes is None else format_size(environment.memory_bytes),
        environment.gpu,
    ]
    return versions or UNKNOWN, ", ".join(part for part in hardware if part) or UNKNOWN
