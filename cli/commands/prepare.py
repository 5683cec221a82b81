"""Command `dlrm prepare`: converts raw data to the packed format, or infers a schema for raw data."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.infer import infer_job
from cli.commands.options import EndAsJson, Inference, SetOption, Threads, grouped
from cli.local.child_program import ProgramStopped, run_program
from cli.local.console import escape_unprintable, format_duration, format_percent, print_warnings, say
from cli.local.data_files import read_source
from cli.local.errors import BadInputError, refuse_options
from cli.local.trainer import require_trainer
from cli.render.tables import make_facts_table, print_result
from dlrm.config import format_count
from dlrm.config.patterns import PACKED_META
from dlrm.record import EXIT_STOPPED
from hostinfo.sizes import format_size

MAX_TABLES = 40
"""Largest number of embedding tables whose sizes are shown."""


Source = Annotated[
    list[str], typer.Argument(metavar="SOURCE", help="One job document, or data files.", show_default=False)
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Directory to write; with --infer, the job document to write.", show_default=False
    ),
]
Extend = Annotated[
    Path | None,
    typer.Option(
        help="Earlier --output whose table rows are kept; new values get new rows after them.", show_default=False
    ),
]
Infer = Annotated[bool, typer.Option("--infer", help="Infer the schema of the files, and write a job document.")]


@grouped
def prepare(
    source: Source,
    *,
    output: Output = None,
    settings: SetOption = None,
    extend: Extend = None,
    threads: Threads = None,
    infer: Infer = False,
    inference: Inference,
    as_json: EndAsJson = False,
) -> None:
    """Prepare data for training: write packed rows, vocabularies and checksums to one directory.

    SOURCE is a job document (only its data section is used) or files in the
    Criteo format (plain, gzip or zstd):

        dlrm prepare job.toml --output prepared/january

        dlrm prepare 'criteo/day_*.gz' --output prepared/criteo

    Parquet, CSV, JSON Lines and Arrow files need a schema. --infer writes a job
    document with one, in which every column is used by what it predicts; --label,
    --positive, --weight and --eval are for it. Check the document, then prepare
    the data with it:

        dlrm prepare --infer ratings.csv --positive '>= 4' --output job.toml

    For the data of new days, --extend keeps the table rows of the earlier days:

        dlrm prepare new.toml --output prepared/february --extend prepared/january

    To train on the result, name the directory in a job, with format "packed".
    This command is optional: `dlrm train` and the service prepare the raw data of
    a job themselves.

    If preparation was interrupted, the same command continues where it stopped.

    Exit code: 0 prepared, 2 bad input, 75 stopped, 1 any other failure.
    """
    if infer:
        others = {"--extend": extend, "--threads": threads, "--json": as_json or None, "--set": settings}
        refuse_options(others, "not valid with --infer")
        infer_job(source, output, inference)
        return
    refuse_options(inference.options, "valid only with --infer")
    if output is None:
        raise BadInputError("--output: missing (valid: the directory to write)")
    result = _make_result(_prepare(source, settings, output, extend, threads), output)
    print_warnings(result["odd_values"])
    print_result(result, make_facts_table(_list_facts(result).items()), as_json=as_json)


def _prepare(
    source: list[str], settings: list[str] | None, output: Path, extend: Path | None, threads: int | None
) -> dict[str, Any]:
    """Run the program, and return its result. Raises CommandError, and typer.Exit if it was stopped."""
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
        return run_program("dlrm.programs.prepare", arguments, data.model_dump(mode="json"), "preparing")
    except ProgramStopped:
        say("stopped; repeat the same command to continue")
        raise typer.Exit(EXIT_STOPPED) from None


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


def _list_facts(result: Mapping[str, Any]) -> dict[str, str | None]:
    """List rows, tables, size, speed, memory and output of a result, for people."""
    num_rows, sizes, added = result["num_rows"], result["table_sizes"], result["num_added"]
    bad = f", {result['num_bad_rows']:,} bad rows left out" if result["num_bad_rows"] else ""
    grown = {name: number for name, number in added.items() if number}
    return {
        "rows": f"{num_rows['train']:,} for training, {num_rows['eval']:,} held out{bad}",
        "label rate": format_percent(result["label_rate"]),
        "tables": f"{len(sizes)}, with {format_count(sum(sizes.values()), 'row')}: {_format_list(sizes)}",
        "added": f"{sum(grown.values()):,} values{': ' if grown else ''}{_format_list(grown)}" if added else None,
        "size": format_size(result["num_bytes"]),
        "checksum": result["checksum"],
        "speed": f"{result['rows_per_second']:,.0f} rows/s, {format_duration(result['seconds'])}",
        "peak memory": format_size(result["peak_memory_bytes"]),
        "output": result["output"],
    }
