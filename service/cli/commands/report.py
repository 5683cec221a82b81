"""Command `dlrm report`: tables, plots and intervals from the results of a sweep."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from dlrm.record import write_atomically
from service.cli.child_program import ProgramStopped
from service.cli.errors import EXIT_INTERRUPTED, BadInputError
from service.cli.render.text_format import escape_unprintable
from service.cli.reporting.content import Page
from service.cli.reporting.html import render_html
from service.cli.reporting.load import load_results
from service.cli.reporting.markdown import render_markdown
from service.cli.reporting.numbers import ReportOptions, compute_report
from service.cli.reporting.page import make_page
from service.cli.reporting.record import make_report_record


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS", help="Directories of one sweep, or their results.jsonl.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write an HTML page: one file that needs no network.", show_default=False),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write Markdown with the same tables.", show_default=False)
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(help="Directory of the plots of the Markdown, as SVG. [dim]Default: NAME-plots beside it[/dim]"),
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Method that the others are compared with.")
    ] = None,
    base_cell: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE[,VALUE]",
            help="Compare all with the base at these compared values, such as 4096.",
            show_default="the same values as each",
        ),
    ] = None,
    target_auc: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="AUC to count steps and samples to.", show_default="the highest that all reach"
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.", show_default="that of the results")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one line of JSON.")] = False,
) -> None:
    """Report the results of a sweep: which method is better, by how much, and how sure.

        dlrm report runs/batches-sweep

        dlrm report runs/batches-sweep --base adam --output report.html

        dlrm report part1 part2 --base adam --base-cell 4096 --markdown report.md

    Without --output, --markdown and --json the Markdown goes to stdout. Both have
    the same tables:

    AUC and log-loss of each method at each compared value, with 95 % intervals
    over seeds; with one seed, over samples of evaluation rows alone.

    Differences to --base, of the same seeds on the same evaluation rows: a paired
    DeLong test by the scores that the sweep keeps. Trials with other evaluation
    rows are not paired, and the report says so.

    Steps and samples to --target-auc by batch, with the critical batch that fits
    them, beside the noise scale that the runs have measured.

    The gap to the training rows, the cost, and every trial with its settings,
    versions and hardware.

    docs/sweeps.md says how each number is made. Exit code: 0 reported, 2 bad
    input, 1 any other failure.
    """
    if plots is not None and markdown is None:
        raise BadInputError("--plots: is of the Markdown (valid: with --markdown FILE)")
    for option, path in (("--output", output), ("--markdown", markdown)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise BadInputError(
                f"{option} {path}: not a file that can be written (valid: a file in an existing directory)"
            )
    loaded = load_results(results)
    try:
        numbers = compute_report(loaded, ReportOptions(base, base_cell, target_auc))
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    page = make_page(numbers, title or _make_title(results[0]))
    if output is not None:
        _write(output, render_html(page), "--output")
    if markdown is not None:
        _write_markdown(page, markdown, plots or markdown.with_name(f"{markdown.stem}-plots"))
    if as_json:
        typer.echo(json.dumps(make_report_record(numbers)))
    elif output is None and markdown is None:
        typer.echo(escape_unprintable(render_markdown(page, None), keep="\n"), nl=False)


def _make_title(results: Path) -> str:
    directory = results if results.is_dir() else results.parent
    return f"Report of {directory.absolute().name or 'a sweep'}"


def _write_markdown(page: Page, path: Path, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--plots {directory}: {error.strerror}") from None
    for plot in page.list_plots():
        _write(directory / f"{plot.name}.svg", plot.svg + "\n", "--plots")
    relative = Path(os.path.relpath(directory.absolute(), path.absolute().parent)).as_posix()
    _write(path, render_markdown(page, relative), "--markdown")


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BadInputError(f"{option} {path}: {error.strerror}") from None
