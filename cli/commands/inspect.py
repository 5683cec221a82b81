"""Command `dlrm data inspect`: reports the content of training data, and likely faults in it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.local.child_program import ProgramStopped, run_program
from cli.local.console import console_on
from cli.local.errors import EXIT_INTERRUPTED, BadInputError
from cli.local.set_option import SetOption
from cli.local.sources import read_source
from cli.local.trainer import require_trainer
from cli.render.inspection import print_report
from cli.render.inspection_page import render_report_page
from dlrm.record import write_atomically

DEFAULT_ROWS = 2_000_000
"""Default of --rows: largest number of rows that are read."""

data = typer.Typer(name="data", no_args_is_help=True, rich_markup_mode="rich", help="Inspect data.")


@data.callback()
def _group() -> None:
    """Inspect data."""


@data.command()
def inspect(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE", help="One job document, a prepared directory, or data files.", show_default=False
        ),
    ],
    settings: SetOption = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write an HTML page with plots: one file that needs no network.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")] = False,
    rows: Annotated[
        int, typer.Option(min=1, help="Largest number of rows to read, spread evenly over the data.")
    ] = DEFAULT_ROWS,
) -> None:
    """Report what training data contains, before a model is trained on it.

    The report shows the number of rows, the share of rows with label 1, missing
    and distinct values, frequencies, and the sizes of the embedding tables. It
    warns of likely faults: columns that reveal the label, constant columns, and
    columns that are ids.

        dlrm data inspect job.toml

        dlrm data inspect 'criteo/day_*.gz' --html report.html

        dlrm data inspect prepared/criteo --json | jq '.warnings[].message'

    Files of other formats need a schema, so pass a job document instead;
    `dlrm prepare --infer` writes one for them. For a prepared directory the
    report shows the values that a model gets: row numbers of embedding tables,
    and dense values after their transform.

    Exit code: 0 inspected, with or without warnings, 2 bad input, 1 any other failure.
    """
    inspected = read_source(source, settings)
    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        raise BadInputError(f"--html {html}: not a file that can be written (valid: a file in an existing directory)")
    require_trainer("polars")
    request = {
        "data": inspected.data.model_dump(mode="json"),
        "embedding_dim": inspected.embedding_dim,
        "max_rows": rows,
    }
    try:
        report = run_program("dlrm.programs.inspect", ["rows"], request, "inspecting")
    except ProgramStopped:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    del report["kind"]
    if html is not None:
        try:
            write_atomically(html, render_report_page(report, " ".join(source)))
        except OSError as error:
            raise BadInputError(f"--html {html}: {error.strerror}") from None
    if as_json:
        typer.echo(json.dumps(report))
        return
    console = console_on()
    print_report(console, report)
    if html is not None:
        console.print(f"page: {html}", markup=False, highlight=False, soft_wrap=True)
