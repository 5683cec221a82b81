"""Command `dlrm evaluate`: measures a trained model, usually on rows that it was not trained on."""

from typing import Annotated, Any

import typer

from cli.commands.options import Format, LineOfJson
from cli.commands.scoring import require_model, require_run, require_scorer, run_scorer
from cli.local.run_store import local_checkpoint, local_model
from cli.render.job_tables import make_result_table
from cli.render.tables import print_result


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
    as_json: LineOfJson = False,
) -> None:
    """Measure the quality of a trained model: AUC, log-loss, normalized entropy, calibration.

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
