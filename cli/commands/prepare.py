"""Command `dlrm prepare`: converts raw data to the packed format, or infers a schema for raw data."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.commands.infer import Inference, infer_job
from cli.local.child_program import ProgramStopped, run_program
from cli.local.console import console_on
from cli.local.errors import BadInputError, refuse_options
from cli.local.progress import format_duration
from cli.local.set_option import SetOption
from cli.local.sources import PACKED_META, read_source
from cli.local.text_format import escape_unprintable, format_percent, print_warnings
from cli.local.trainer import require_trainer
from dlrm.config import format_count
from dlrm.record import EXIT_STOPPED
from hostinfo.sizes import format_size

MAX_TABLES = 40
"""Largest number of embedding tables whose sizes are shown."""

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Directory to write; with --infer, the job document to write.", show_default=False
    ),
]


def prepare(
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="One job document, or data files.", show_default=False),
    ],
    output: Output = None,
    settings: SetOption = None,
    extend: Annotated[
        Path | None,
        typer.Option(
            help="Earlier --output whose table rows are kept; new values get new rows after them.", show_default=False
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")] = None,
    infer: Annotated[
        bool, typer.Option("--infer", help="Infer the schema of the files, and write a job document.")
    ] = False,
    label: Annotated[
        str | None,
        typer.Option(help="Name of the label column, for --infer.", show_default="found by its name or place"),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Value of the label that stands for 1, or a comparison such as '>= 4', for --infer.",
            show_default="found by its meaning",
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            help="Name of the weight column, or none, for --infer.", show_default="a column called sample_weight"
        ),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option("--eval", help="Evaluation files, for --infer; repeatable.", show_default="a tenth of the rows"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")] = False,
) -> None:
    """Prepare data for training: write packed rows, vocabularies and checksums to one directory.

    SOURCE is a job document (only its data section is used) or files in the
    Criteo format (plain, gzip or zstd):

        dlrm prepare job.toml --output prepared/january

        dlrm prepare 'criteo/day_*.gz' --output prepared/criteo

    Parquet, CSV, JSON Lines and Arrow files need a schema. --infer writes a job
    document with one, in which every column is used by what it predicts; check
    it, then prepare the data with it:

        dlrm prepare --infer 'logs/*.parquet' --output job.toml

        dlrm prepare --infer ratings.csv --label rating --positive '>= 4' -o job.toml

        dlrm prepare job.toml --output prepared/logs

    For the data of new days, --extend keeps the table rows of the earlier days:

        dlrm prepare new.toml --output prepared/february --extend prepared/january

    To train on the result, name the directory in a job, with format "packed".
    This command is optional: `dlrm train` and the service prepare the raw data of
    a job themselves.

    If preparation was interrupted, the same command continues where it stopped.

    Exit code: 0 prepared, 2 bad input, 75 stopped on request, 1 any other failure.
    """
    inference = Inference(label, evaluation or None, positive, weight)
    if infer:
        refuse_options(
            {"--extend": extend, "--threads": threads, "--json": as_json or None, "--set": settings},
            "not valid with --infer",
        )
        infer_job(source, output, inference)
        return
    refuse_options(inference.options, "valid only with --infer")
    if output is None:
        raise BadInputError("--output: missing (valid: the directory to write)")
    if extend is not None and not extend.is_dir():
        raise BadInputError(
            f"--extend {extend}: no such directory (valid: one that `dlrm prepare` wrote, or the model/ of a run)"
        )
    data = read_source(source, settings).data
    if not data.is_raw:
        raise BadInputError(f"{source[0]}: data of format {data.format} needs no preparation")
    require_trainer("polars")
    arguments = ["--output", str(output.absolute())]
    arguments += ["--extend", str(extend.absolute())] if extend else []
    arguments += ["--threads", str(threads)] if threads else []
    try:
        result = run_program("dlrm.programs.prepare", arguments, data.model_dump(mode="json"), "preparing")
    except ProgramStopped:
        message = "stopped; repeat the same command to continue"
        Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_STOPPED) from None
    result = _make_result(result, output)
    print_warnings(Console(stderr=True, highlight=False, soft_wrap=True), result["odd_values"])
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console_on().print(make_result_table(result))


def _make_result(reported: dict[str, Any], output: Path) -> dict[str, Any]:
    """Return what `--json` prints: the result of the program, with facts about the directory that it has written."""
    meta = json.loads((output / PACKED_META).read_bytes())
    splits = meta["splits"].values()
    return {
        "output": str(output),
        **{name: value for name, value in reported.items() if name != "kind"},
        "label_rate": sum(split["num_positives"] for split in splits) / sum(split["num_rows"] for split in splits),
        "num_bytes": sum(file["num_bytes"] for file in meta["files"].values()),
    }


def _format_list(by_column: Mapping[str, int]) -> str:
    first = islice(by_column.items(), MAX_TABLES)
    shown = ", ".join(f"{escape_unprintable(name)} {number:,}" for name, number in first)
    return f"{shown}, and {len(by_column) - MAX_TABLES} more" if len(by_column) > MAX_TABLES else shown


def make_result_table(result: Mapping[str, Any]) -> Table:
    """Return the table of the result: rows, tables, size, speed, memory and output."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    num_rows = result["num_rows"]
    bad = f", {result['num_bad_rows']:,} bad rows left out" if result["num_bad_rows"] else ""
    table.add_row("rows", f"{num_rows['train']:,} for training, {num_rows['eval']:,} held out{bad}")
    table.add_row("label rate", format_percent(result["label_rate"]))
    sizes: Mapping[str, int] = result["table_sizes"]
    table.add_row(
        "tables", Text(f"{len(sizes)}, with {format_count(sum(sizes.values()), 'row')}: {_format_list(sizes)}")
    )
    added: Mapping[str, int] = result["num_added"]
    if added:
        grown = {name: number for name, number in added.items() if number}
        table.add_row("added", Text(f"{sum(grown.values()):,} values{': ' if grown else ''}{_format_list(grown)}"))
    table.add_row("size", format_size(result["num_bytes"]))
    table.add_row("checksum", result["checksum"])
    table.add_row("speed", f"{result['rows_per_second']:,.0f} rows/s, {format_duration(result['seconds'])}")
    table.add_row("peak memory", format_size(result["peak_memory_bytes"]))
    table.add_row("output", Text(result["output"]))
    return table
