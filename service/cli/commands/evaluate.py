"""Command `dlrm evaluate`: measures a trained model, usually on rows that it was not trained on."""

import json
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE
from service.cli.child_program import LAST_LINES
from service.cli.errors import BadInputError, CommandError
from service.cli.render.console import console_on
from service.cli.render.job_tables import make_result_table
from service.cli.render.text_format import escape_unprintable
from service.cli.saved_model import Format, require_model, require_scorer
from service.cli.trainer import make_module_command


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model/ directory of a run.", show_default=False)],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA]...", help="Files, patterns, or a prepared directory."),
    ] = None,
    file_format: Format = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Measure the quality of a trained model: AUC, log-loss, normalized entropy, calibration.

    Without DATA, the model is measured on the rows that its own run held out:

        dlrm evaluate runs/demo-20260101-120000/model

    With DATA, on the rows of these files, which must have labels:

        dlrm evaluate runs/criteo-20260101-120000/model day_23.tsv --json

    Exit code: 0 measured, 2 no such model or bad data, 1 any other failure.
    """
    require_model(model)
    require_scorer()
    options = [] if file_format is None else ["--format", file_format]
    command = make_module_command("dlrm.programs.evaluate", [*options, "--", str(model), *(data or [])])
    completed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    code, lines = completed.returncode, completed.stderr.splitlines()
    if code not in (EXIT_DONE, EXIT_BAD_INPUT):
        raise CommandError(f"the program ended with exit code {code}; its last lines:", *lines[-LAST_LINES:])
    # For bad input the last line is the fault, and the lines before it say what was left out.
    faults = lines[-1:] if code == EXIT_BAD_INPUT else []
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines[: len(lines) - len(faults)]:
        console.print(escape_unprintable(line), markup=False)
    if faults:
        raise BadInputError(*faults)
    last_line = completed.stdout.strip().splitlines()[-1]
    if as_json:
        typer.echo(last_line)
    else:
        console_on().print(make_result_table(json.loads(last_line)))
