"""The command `dlrm compact`: the deltas of a run in one model."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import LineOfJson
from cli.commands.scoring import require_scorer, run_scorer
from cli.local.errors import BadInputError
from cli.render.tables import make_facts_table, print_result
from dlrm.record import RunDirectory


def compact(
    deltas: Annotated[
        Path, typer.Argument(metavar="RUN|DELTAS", help="A run, or its deltas/ directory.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Model directory to write; must not exist yet.", show_default=False)
    ],
    until: Annotated[int | None, typer.Option(min=0, help="Number of deltas to apply.", show_default="all")] = None,
    as_json: LineOfJson = False,
) -> None:
    """Write one model from the first model of a run's deltas and the deltas that follow it.

    A run with `run.deltas` leaves them, also while it trains:

        dlrm compact runs/clicks-20260101-120000 --output model-of-noon

    The model can take later deltas, and `dlrm predict` reads it as every model.
    Each file is compared with its checksum. The model has no metrics, and its card
    names the step that was measured.

    Exit code: 0 written, 2 a delta is missing or damaged, 1 any other failure.
    """
    run = RunDirectory(deltas)
    directory = run.deltas if run.spec.is_file() else deltas
    if not directory.is_dir():
        raise BadInputError(f"{directory}: no such directory (valid: a run whose job has run.deltas)")
    if output.exists():
        raise BadInputError(f"--output {output}: already exists (valid: a new directory)")
    require_scorer()
    options = [f"--output={output}", *([] if until is None else [f"--until={until}"])]
    result = run_scorer("dlrm.programs.compact", [*options, "--", str(directory)]) | {"model": str(output)}
    facts = (("step", f"{result['step']:,}"), ("deltas", f"{result['num_deltas']:,}"), ("model", str(output)))
    print_result(result, make_facts_table(facts), as_json=as_json)
