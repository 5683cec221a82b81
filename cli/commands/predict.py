"""Command `dlrm predict`: scores every row of data files with a trained model."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.options import EndAsJson, Format, Threads
from cli.commands.scoring import require_model, require_scorer
from cli.local.child_program import ProgramStopped, ReaderGone, run_program
from cli.local.console import format_duration, print_warnings, say
from cli.local.errors import BadInputError
from cli.local.run_store import local_model
from cli.render.tables import make_facts_table, print_result
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
    threads: Threads = None,
    as_json: EndAsJson = False,
) -> None:
    """Score rows with a trained model: the probability that the label of each row is 1.

    There is one score per row, in the order of the rows. Labels are not needed,
    and are ignored. Parquet, Arrow, JSON Lines, gzip and zstd are recognised by
    their content; columns are found by name.

        dlrm predict runs/criteo/model 'day_*.gz' --output scores.parquet

        dlrm predict s3://bucket/runs/logs/model s3://bucket/new -o scores.csv

        dlrm predict runs/logs/model new.csv | paste - ids.txt

    The output file appears only once it is complete; its column is `probability`.

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
        result = _run(output, [*options, "--", str(directory), *data])
    _warn(result)
    if output is not None:
        result = {"output": str(output), **{name: value for name, value in result.items() if name != "kind"}}
        print_result(result, make_facts_table(_list_facts(result).items()), as_json=as_json)


def _run(output: Path | None, arguments: list[str]) -> dict[str, Any]:
    """Run the program and return its result. Raises CommandError, ProgramStopped and typer.Exit."""
    # The program reports progress on its stdout, so the scores go through a duplicate of this process's stdout.
    descriptors = [] if output is not None else [os.dup(sys.stdout.fileno())]
    target = ["--output", str(output)] if output is not None else ["--lines-to", str(descriptors[0])]
    # On a terminal no progress is shown: the scores that scroll by show it.
    is_shown = output is not None or not sys.stdout.isatty()
    module, arguments = "dlrm.programs.predict", [*target, *arguments]
    try:
        return run_program(module, arguments, None, "predicting", descriptors=descriptors, is_shown=is_shown)
    except ProgramStopped:
        say("stopped" if output is None else "stopped; nothing was written")
        raise
    except ReaderGone:
        raise typer.Exit(128 + signal.SIGPIPE) from None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _warn(result: Mapping[str, Any]) -> None:
    if result["num_bad_rows"]:
        say(f"warning: no score for {format_count(result['num_bad_rows'], 'bad row')}")
    if result["num_undefined"]:
        reason = "their values are so far from those in training that the model overflows"
        say(f"warning: no score for {format_count(result['num_undefined'], 'row')}: {reason}")
    print_warnings(result["odd_values"])


def _list_facts(result: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rows": f"{result['num_rows']:,}",
        "speed": f"{result['rows_per_second']:,.0f} rows/s, {format_duration(result['seconds'])}",
        "peak memory": format_size(result["peak_memory_bytes"]),
        "output": result["output"],
    }
