"""Sections of a report about cost, the gap to training rows, and every single trial."""

from collections.abc import Sequence

from cli.experiments.report.batch_plot import draw_batch_plot
from cli.experiments.report.content import Column, Paragraph, Section, Table
from cli.experiments.report.figures import (
    DIGITS,
    format_count,
    format_difference,
    format_estimate,
    format_seconds,
)
from cli.experiments.report.load import LoadedTrial
from cli.experiments.report.numbers import MainRow, SweepReport
from cli.experiments.sweep.results import Environment
from cli.experiments.sweep.trials import format_settings, format_value
from cli.local.console import UNKNOWN
from hostinfo.sizes import format_size


def make_detail_sections(report: SweepReport) -> list[Section]:
    """Make the sections of the gap, the cost, and the trials."""
    return [_make_gap_section(report.rows), _make_cost_section(report), _make_trial_section(report)]


def _make_gap_section(rows: Sequence[MainRow]) -> Section:
    heading = "Gap between training and evaluation rows"
    known = [row for row in rows if row.train_auc_gap is not None]
    if not known:
        text = "No trial reports an AUC on training rows: run.num_train_eval_rows of the job document makes them do so."
        return Section(heading, [Paragraph(text)])
    table = Table(
        "AUC on training rows less AUC on evaluation rows",
        [Column("result", is_number=False), Column("AUC on evaluation rows"), Column("gap")],
        [
            [row.cell.label, format_estimate(row.auc), format_difference(row.train_auc_gap, is_paired=False)]
            for row in known
        ],
    )
    plot = draw_batch_plot(
        "train-auc-gap",
        "Gap by batch",
        "gap of AUC to training rows",
        rows,
        lambda row: row.train_auc_gap,
    )
    note = Paragraph("±: 95 % interval over seeds by Student's t distribution.")
    return Section(heading, [*([] if plot is None else [plot]), table, note])


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
    table = Table("All trials of each method", [Column(text, is_number=text != "method") for text in headings], rows)
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
    numbers = {"seed", "AUC", "log-loss", "validation log-loss", "steps", "samples", "CPU seconds", "machine"}
    rows = [
        _make_trial_row(trial, environments.index(_describe_environment(trial.result.environment)) + 1)
        for trial in trials
    ]
    machines = Table(
        "Versions and hardware",
        [Column("machine"), Column("versions", is_number=False), Column("hardware", is_number=False)],
        [[str(number), *environment] for number, environment in enumerate(environments, 1)],
    )
    columns = [Column(heading, is_number=heading in numbers) for heading in headings]
    return Section(
        "All trials, with versions and hardware",
        [Table("Trials", columns, rows).drop_unknown_columns(), machines],
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
