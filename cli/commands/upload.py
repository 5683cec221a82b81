"""Command `dlrm upload`: finishes the upload of a run that is kept in a bucket."""

from pathlib import Path
from typing import Annotated

import typer

from cli.local.console import say
from cli.local.run_store import upload_run


def upload(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIRECTORY", help="The directory of a run.", show_default=False)],
) -> None:
    """Upload what a run with --run-store has left in its directory: checkpoints, model, reports.

    A run does that by itself while it trains and at its end, and says what is left
    if its bucket was out of reach for too long. This command goes on until all
    is there, or Ctrl-C.

        dlrm upload runs/demo-20260101-120000

    Exit code: 0 all is in the bucket, 2 no such run or bucket, 75 stopped on
    request, 1 any other failure, such as another launch that works on the run.
    """
    uri = upload_run(run.resolve())
    say(f"all is in {uri}")
