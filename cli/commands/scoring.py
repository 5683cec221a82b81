"""Commands that score rows with a trained model: `dlrm predict`, `evaluate` and `export`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.options import EndAsJson, Format, LineOfJson, NegativeSampling, Threads
from cli.local.child_program import LAST_LINES, ProgramStopped, ReaderGone, run_program
from cli.local.console import format_duration, print_warnings, say
from cli.local.errors import BadInputError, CommandError
from cli.local.run_documents import read_resolved_job
from cli.local.run_store import local_checkpoint, local_model
from cli.local.trainer import make_module_command, require_libraries
from cli.render.job_tables import make_result_table
from cli.render.tables import make_facts_table, print_result
from dlrm.config import format_count
from dlrm.config.patterns import is_remote
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE, NoModelError, RunDirectory, TrainedModel
from hostinfo.sizes import format_size

_LIBRARIES = ("torch", "numpy", "polars", "pyarrow", "safetensors")
"""Modules that scoring imports."""
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


def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The model/ directory of a run; with --checkpoint, the run's own; also in a bucket.",
            show_default=False,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA]...", help="Files, patterns, or a prepared directory."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Checkpoint of the run: newest, a name such as step-500, or a path.",
            show_default=False,
        ),
    ] = None,
    file_format: Format = None,
    negative_sampling: NegativeSampling = None,
    as_json: LineOfJson = False,
) -> None:
    """Measure the quality of a trained model: AUC, log-loss, normalized entropy, calibration.

    If run.group_by was set, also AUC, recall and NDCG within groups.

    Without DATA, the model is measured on the rows that its own run held out:

        dlrm evaluate runs/demo-20260101-120000/model

    With DATA, on the rows of these files, which must have labels:

        dlrm evaluate runs/criteo-20260101-120000/model day_23.tsv --json

    --checkpoint measures the model as it was at a checkpoint of a run, which need not
    have ended: newest, step-500, or the path of a checkpoint's directory.

        dlrm evaluate runs/demo-20260101-120000 --checkpoint newest

        dlrm evaluate s3://bucket/runs/demo-20260101-120000 --checkpoint newest

    Exit code: 0 measured, 2 no such model or bad data, 1 any other failure.
    """
    require_scorer()
    options = [] if file_format is None else ["--format", file_format]
    options += [] if negative_sampling is None else ["--negative-sampling", str(negative_sampling)]
    metrics = _measure(model, checkpoint, options, data or [])
    print_result(metrics, make_result_table(metrics), as_json=as_json)


def _measure(model: str, checkpoint: str | None, options: list[str], data: list[str]) -> dict[str, Any]:
    """Return the metrics of a model, or of a run at a checkpoint. Raises CommandError."""
    if checkpoint is None:
        with local_model(model) as directory:
            require_model(directory)
            return run_scorer("dlrm.programs.evaluate", [*options, "--", str(directory), *data])
    with local_checkpoint(model, checkpoint) as (directory, found):
        require_run(directory)
        options = [*options, "--checkpoint", str(found)]
        return run_scorer("dlrm.programs.evaluate", [*options, "--", str(directory), *data])


def export(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The directory of a run, here or in a bucket.", show_default=False),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory to write; must not exist yet.", show_default=False)
    ] = None,
    to_hub: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory to write for the Hugging Face Hub, from RUN or its model/; must not exist yet.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="newest, a name such as step-500, or the path of a checkpoint.",
            show_default="that of the model/ of the run; newest if there is none",
        ),
    ] = None,
    as_json: LineOfJson = False,
) -> None:
    """Write the model of a checkpoint, as a run does at its end: weights, encoders, metrics, card.

    A run that has not ended has no model/ yet, but its checkpoints can be exported:

        dlrm export runs/demo-20260101-120000 --output model-of-today

        dlrm export runs/demo-20260101-120000 --checkpoint step-500 -o model-500

        dlrm export s3://bucket/runs/demo-20260101-120000 -o model-of-bucket

    --to-hub writes a finished model as a directory for the Hugging Face Hub, with
    a card as README.md; `huggingface_hub.upload_folder` uploads it as it is:

        dlrm export runs/demo-20260101-120000 --to-hub demo-hub

    Nothing is uploaded. README.md names no license: that is for you to add. Paths,
    labels, trackers and launcher of the job are left out; names of columns and
    files stay, and encoders/ has values of its rows. The card is written anew: what
    was added to MODEL_CARD.md by hand is not in it.

    The metrics are from the evaluation after that step; if the run made none, the
    model is measured now, on the rows that the run held out. Reading a checkpoint
    can run code that its author put into it: export only checkpoints that you trust.

    Exit code: 0 written, 2 no such checkpoint or bad input, 1 any other failure.
    """
    if (output is None) == (to_hub is None):
        raise BadInputError("--output, --to-hub: one of them is required (valid: --output DIRECTORY)")
    if to_hub is not None and checkpoint is not None:
        raise BadInputError("--checkpoint: valid with --output, whose model can then be exported --to-hub")
    if output is not None and not is_remote(run):
        require_run(Path(run))
    for option, path in (("--output", output), ("--to-hub", to_hub)):
        if path is not None and path.exists():
            raise BadInputError(f"{option} {path}: already exists (valid: a new directory)")
    require_scorer()
    if to_hub is not None:
        with local_model(run) as directory:
            arguments = ["--to-hub", str(to_hub), "--", str(find_trained_model(directory, run))]
            result = run_scorer("dlrm.programs.export", arguments)
    else:
        with local_checkpoint(run, checkpoint) as (directory, found):
            options = ["--checkpoint", found or find_kept_checkpoint(directory), "--output", str(output)]
            result = run_scorer("dlrm.programs.export", [*options, "--", str(directory)])
    result["model"] = str(to_hub or output)
    print_result(result, make_result_table(result), as_json=as_json)
    if to_hub is not None:
        say(
            "before you publish it: paths, labels, trackers and launcher of the job are left out; names of columns and "
            "files are in README.md, MODEL_CARD.md and config.json, and encoders/ has values of its rows; both cards "
            "are written anew, without what was added by hand"
        )


def find_trained_model(directory: Path, named: str) -> Path:
    """Find the model of a run, or in its own directory. named: path as the user wrote it. Raises BadInputError."""
    try:
        return TrainedModel.find(directory).path
    except NoModelError as error:
        raise BadInputError(f"{named}: {error} (valid: a run that has succeeded, or its model/ directory)") from None


def find_kept_checkpoint(run: Path) -> str:
    """Return the path of the checkpoint whose model the run has kept, not necessarily its last; else `newest`."""
    try:
        kept = TrainedModel.find(run).checkpoint
    except NoModelError:
        return "newest"
    return "newest" if kept is None else str(kept.path)


def require_run(path: Path) -> None:
    """Raise BadInputError if `path` is not the directory of a run with a valid job document."""
    read_resolved_job(RunDirectory(path), path)


def require_model(model: Path) -> None:
    """Raise BadInputError if `model` is not the directory of a model."""
    if not model.is_dir():
        raise BadInputError(f"{model}: no such directory (valid: the model/ directory of a run)")
    if (model / "model").is_dir():
        raise BadInputError(f"{model}: is the directory of a run; its model is {model / 'model'}")
    if (model / "checkpoints").is_dir():
        raise BadInputError(f"{model}: is the directory of a run without a model (valid: --checkpoint newest)")


def require_scorer() -> None:
    """Raise CommandError if a library that scoring needs is not installed."""
    require_libraries("a model needs", _LIBRARIES, "predict")


def run_scorer(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a program that scores rows and prints one line of JSON at its end; return that, parsed.

    Its messages about rows that it left out go to stderr. Raises BadInputError and CommandError.
    """
    command = make_module_command(module, arguments)
    completed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    code, lines = completed.returncode, completed.stderr.splitlines()
    if code not in (EXIT_DONE, EXIT_BAD_INPUT):
        raise CommandError(f"the program ended with exit code {code}; its last lines:", *lines[-LAST_LINES:])
    # For bad input the last line is the fault, and the lines before it say what was left out.
    faults = lines[-1:] if code == EXIT_BAD_INPUT else []
    for line in lines[: len(lines) - len(faults)]:
        say(line)
    if faults:
        raise BadInputError(*faults)
    return json.loads(completed.stdout.strip().splitlines()[-1])
