"""Command `dlrm data inspect`: reports the content of training data, and likely faults in it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.options import LineOfJson, SetOption
from cli.local.child_program import run_program
from cli.local.console import console_on, print_line
from cli.local.data_files import read_source
from cli.local.outputs import check_output, write_output
from cli.local.trainer import require_trainer
from cli.render.inspection import print_report, render_report_page

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
    as_json: LineOfJson = False,
    rows: Annotated[
        int, typer.Option(min=1, help="Largest number of rows to read, spread evenly over the data.")
    ] = DEFAULT_ROWS,
) -> None:
    """Report what training data contains, before a model is trained on it.

    The report shows the number of rows, the share of rows with label 1, missing
    and distinct values, frequencies, and the sizes of the embedding tables. It
    warns of likely faults: columns that reveal the label, constant columns, and
    columns of ids.

        dlrm data inspect job.toml

        dlrm data inspect 'criteo/day_*.gz' --html report.html

        dlrm data inspect prepared/criteo --json | jq '.warnings[].message'

    Files of other formats need a schema, so pass a job document instead;
    `dlrm prepare --infer` writes one for them. For a prepared directory the
    report shows the values that a model gets: row numbers of embedding tables,
    and dense values after their transform.

    Exit code: 0 inspected, with or without warnings, 2 bad input, 1 any other failure.
    """
    report = _inspect(source, settings, html, rows)
    if html is not None:
        write_output(html, render_report_page(report, " ".join(source)), "--html")
    if as_json:
        typer.echo(json.dumps(report))
        return
    console = console_on()
    print_report(console, report)
    if html is not None:
        print_line(console, f"page: {html}")


def _inspect(source: list[str], settings: list[str] | None, html: Path | None, rows: int) -> dict[str, Any]:
    """Return the report on the rows of a source. Raises CommandError, also if no page can be written to `html`."""
    inspected = read_source(source, settings)
    check_output("--html", html)
    require_trainer("polars")
    request = {
        "data": inspected.data.model_dump(mode="json"),
        "embedding_dim": inspected.embedding_dim,
        "max_rows": rows,
    }
    report = run_program("dlrm.programs.inspect", ["rows"], request, "inspecting")
    del report["kind"]
    return report
