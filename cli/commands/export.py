"""Command `dlrm export`: writes the model of any checkpoint of a run."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import LineOfJson
from cli.commands.scoring import require_run, require_scorer, run_scorer
from cli.local.errors import BadInputError
from cli.local.run_store import local_checkpoint
from cli.render.job_tables import make_result_table
from cli.render.tables import print_result
from dlrm.config.patterns import is_remote
from dlrm.record import NoModelError, TrainedModel


def export(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The directory of a run, here or in a bucket.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory to write; must not exist yet.", show_default=False)
    ],
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

    The metrics are from the evaluation after that step; if the run made none, the
    model is measured now, on the rows that the run held out. Reading a checkpoint
    can run code that its author put into it: export only checkpoints that you trust.

    Exit code: 0 written, 2 no such checkpoint or bad input, 1 any other failure.
    """
    if not is_remote(run):
        require_run(Path(run))
    if output.exists():
        raise BadInputError(f"--output {output}: already exists (valid: a new directory)")
    require_scorer()
    with local_checkpoint(run, checkpoint) as (directory, found):
        options = ["--checkpoint", found or find_kept_checkpoint(directory), "--output", str(output)]
        result = {**run_scorer("dlrm.programs.export", [*options, "--", str(directory)]), "model": str(output)}
    print_result(result, make_result_table(result), as_json=as_json)


def find_kept_checkpoint(run: Path) -> str:
    """Return the path of the checkpoint whose model the run has kept, not necessarily its last; else `newest`."""
    try:
        kept = TrainedModel.find(run).checkpoint
    except NoModelError:
        return "newest"
    return "newest" if kept is None else str(kept.path)
