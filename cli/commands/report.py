"""Command `dlrm report`: tables, plots and intervals from the results of a sweep."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.experiment import require_experiment_libraries
from cli.experiments.report.files import ReportFiles, write_report
from cli.experiments.report.load import load_results
from cli.experiments.report.numbers import ReportOptions, compute_report
from cli.experiments.report.page import make_page
from cli.experiments.report.record import make_report_record
from cli.local.child_program import ProgramStopped
from cli.local.console import console_on, escape_unprintable
from cli.local.errors import EXIT_INTERRUPTED

Results = Annotated[
    list[Path],
    typer.Argument(metavar="RESULTS", help="Directories of one sweep, or their results.jsonl.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write an HTML page: one file that needs no network.", show_default=False),
]
Markdown = Annotated[Path | None, typer.Option(help="Write Markdown with the same tables.", show_default=False)]
Plots = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write each plot as an SVG file.", show_default="NAME-plots beside the Markdown NAME.md"
    ),
]
Base = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD",
        help="Method that the others are compared with; may be repeated.",
        show_default=False,
    ),
]
BaseCell = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE[,VALUE]",
        help="Compare all with the base at these compared values, such as 4096.",
        show_default="the same values as each",
    ),
]
TargetAuc = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="AUC to count steps and samples to.", show_default="the highest that all reach"
    ),
]
Title = Annotated[str | None, typer.Option(help="Title of the report.", show_default="Report of DIRECTORY")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as one line of JSON.")]


def report(
    results: Results,
    output: Output = None,
    markdown: Markdown = None,
    plots: Plots = None,
    base: Base = None,
    base_cell: BaseCell = None,
    target_auc: TargetAuc = None,
    title: Title = None,
    as_json: AsJson = False,
) -> None:
    """Report the results of a sweep: which method is better, by how much, and how sure.

        dlrm report runs/batches-sweep

        dlrm report runs/batches-sweep --base adam --output report.html

        dlrm report part1 part2 --base adam --markdown report.md --plots plots

    Without --output, --markdown and --json the Markdown goes to stdout. Page and
    Markdown have the same tables and plots: AUC and log-loss of each method at
    each compared value, with 95 % intervals; the differences to --base, of the
    same seeds on the same evaluation rows; the course of AUC, log-loss and the
    gap to training rows; steps and samples to --target-auc by batch, with the
    critical batch; the cost; and every trial with its versions and hardware.

    docs/sweeps.md says how each number is made. Exit code: 0 reported, 2 bad
    input, 1 any other failure.
    """
    require_experiment_libraries()
    files = ReportFiles(output, markdown, plots)
    files.check()
    loaded = load_results(results)
    try:
        numbers = compute_report(loaded, ReportOptions(base or (), base_cell, target_auc))
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    text = write_report(make_page(numbers, title or _make_title(results[0])), files)
    for path in files.list_written():
        console_on(stderr=True).print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(make_report_record(numbers)))
    elif output is None and markdown is None:
        typer.echo(escape_unprintable(text, keep="\n"), nl=False)


def _make_title(results: Path) -> str:
    directory = results if results.is_dir() else results.parent
    return f"Report of {directory.absolute().name or 'a sweep'}"
