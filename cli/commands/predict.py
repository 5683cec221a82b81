"""Command `dlrm predict`: scores every row of data files with a trained model."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.child_program import ProgramStopped, ReaderGone, run_program
from cli.local.console import console_on
from cli.local.errors import EXIT_INTERRUPTED, BadInputError
from cli.local.progress import format_duration
from cli.local.run_store import local_model
from cli.local.saved_model import Format, require_model, require_scorer
from cli.local.text_format import print_warnings
from dlrm.config import format_count
from hostinfo.sizes import format_size

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File to write, .parquet or .csv.", show_default="lines on stdout"),
]


def predict(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="The model/ directory of a run, here or in a bucket.", show_default=False),
    ],
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help="Files, patterns, or a prepared directory.", show_default=False),
    ],
    output: Output = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite an existing --output.")] = False,
    file_format: Format = None,
    max_bad_fraction: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Largest share of rows that may be unreadable; these get no score.")
    ] = 0.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Score rows with a trained model: the probability that the label of each row is 1.

    There is one score per row, in the order of the rows. Labels are not needed,
    and are ignored where they are present. Parquet, Arrow, JSON Lines, gzip and
    zstd are recognised by their content; columns are found by name.

        dlrm predict runs/criteo/model 'day_*.gz' --output scores.parquet

        dlrm predict runs/logs/model s3://bucket/logs/2026-01-31 -o scores.csv

        dlrm predict runs/logs/model new.csv | paste - ids.txt

        dlrm predict s3://bucket/runs/logs/model new.csv -o scores.csv

    The output file appears only once it is complete; its column is named
    probability.

    Exit code: 0 scored, 2 no such model or bad data, 130 interrupted, 1 any other
    failure.
    """
    if output is None and (overwrite or as_json):
        option = "--overwrite" if overwrite else "--json"
        raise BadInputError(f"{option}: valid only with --output; without it, the scores are printed on stdout")
    require_scorer()
    options = ["--max-bad-fraction", str(max_bad_fraction)]
    options += ["--overwrite"] if overwrite else []
    options += [] if file_format is None else ["--format", file_format]
    options += [] if threads is None else ["--threads", str(threads)]
    with local_model(model) as directory:
        require_model(directory)
        result = _run_to_end(output, [*options, "--", str(directory), *data])
    _warn(result)
    if output is None:
        return
    result = {"output": str(output), **{name: value for name, value in result.items() if name != "kind"}}
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console_on().print(make_result_table(result))


def _run_to_end(output: Path | None, arguments: list[str]) -> dict[str, Any]:
    """Run the program and return its result. Raises CommandError, and typer.Exit where it was stopped."""
    try:
        return _run(output, arguments)
    except ProgramStopped:
        message = "stopped" if output is None else "stopped; nothing was written"
        Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except ReaderGone:
        raise typer.Exit(128 + signal.SIGPIPE) from None


def _run(output: Path | None, arguments: list[str]) -> dict[str, Any]:
    if output is not None:
        return run_program("dlrm.programs.predict", ["--output", str(output), *arguments], None, "predicting")
    # The program reports progress on its stdout, so the scores go through a duplicate of this process's stdout.
    descriptor = os.dup(sys.stdout.fileno())
    try:
        # On a terminal no progress is shown: the scores that scroll by show it.
        return run_program(
            "dlrm.programs.predict",
            ["--lines-to", str(descriptor), *arguments],
            None,
            "predicting",
            descriptors=[descriptor],
            is_shown=not sys.stdout.isatty(),
        )
    finally:
        os.close(descriptor)


def _warn(result: Mapping[str, Any]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if result["num_bad_rows"]:
        console.print(f"warning: no score for {format_count(result['num_bad_rows'], 'bad row')}", markup=False)
    if result["num_undefined"]:
        reason = "their values are so far from those in training that the model overflows"
        console.print(f"warning: no score for {format_count(result['num_undefined'], 'row')}: {reason}", markup=False)
    print_warnings(console, result["odd_values"])


def make_result_table(result: Mapping[str, Any]) -> Table:
    """Return the table of the result: rows, speed, memory and output."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    table.add_row("rows", f"{result['num_rows']:,}")
    table.add_row("speed", f"{result['rows_per_second']:,.0f} rows/s, {format_duration(result['seconds'])}")
    table.add_row("peak memory", format_size(result["peak_memory_bytes"]))
    table.add_row("output", Text(result["output"]))
    return table
