"""Command `dlrm cooldown`: cools a run of this machine down from any of its checkpoints, or the model of a job."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.attempt import run_and_show
from cli.commands.options import JOB_ID, Shown, grouped
from cli.commands.service_access import connect
from cli.local.console import say
from cli.local.cooldown import create_cooldown
from cli.local.errors import BadInputError, refuse_options
from dlrm.config import ConfigError, JobSpec, make_cooldown_job, parse_document
from dlrm.record import RunDirectory


@grouped
def cooldown(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|JOB_ID",
            help="Directory of a run at a constant rate, or the id of a job that has succeeded.",
            show_default=False,
        ),
    ],
    *,
    fraction: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="Length, as a share of the samples before the checkpoint.")
    ] = 0.2,
    checkpoint: Annotated[
        int | None, typer.Option(metavar="STEP", help="Step of the checkpoint.", show_default="the newest")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the new run; must not exist yet. [dim]Default: ./runs/NAME-TIME[/dim]"),
    ] = None,
    shown: Shown,
) -> None:
    """Train on from a checkpoint with a rate that falls linearly to zero.

    The rows that come next are used, and a model is left, as by a run with
    decay "wsd" of that length. So one run with decay "constant", or with "wsd"
    before its own cooldown, gives a model of every length. The run itself stays
    as it is.

        dlrm cooldown runs/demo-20260101-120000 --checkpoint 2000

    If it is stopped, `dlrm resume DIRECTORY` continues it.

    The cooldown of a job is a new job, which starts from the model and the
    optimizer state of the old one. The command prints its id:

        dlrm cooldown job_01J…

    Exit code: 0 trained, 2 no such checkpoint, or a rate that has fallen
    already, 75 stopped, 1 any other failure; of a job: 0 submitted, 2 refused.
    """
    if JOB_ID.fullmatch(run) and not RunDirectory(Path(run)).spec.exists():
        given = {"--checkpoint": checkpoint, "--out": out, "--profile": shown.profile or None}
        refuse_options(given | {"--json": shown.as_json or None}, f"not valid with {run}: its cooldown is a new job")
        _submit_cooldown(run, fraction)
        return
    started = create_cooldown(Path(run), fraction, checkpoint, out)
    say(f"cools down from step {started.checkpoint.step:,}: {started.directory.path}" if started.checkpoint else "")
    run_and_show(started, None, shown)


def _submit_cooldown(job_id: str, fraction: float) -> None:
    """Submit the cooldown of a job, and print its id. Raises CommandError and ServiceError."""
    with connect() as client:
        try:
            job = make_cooldown_job(parse_document(JobSpec, client.job(job_id).spec), job_id, fraction)
        except ConfigError as error:
            raise BadInputError(*(f"{job_id}: {fault}" for fault in error.errors)) from None
        typer.echo(client.submit(job.model_dump(mode="json")).id)
