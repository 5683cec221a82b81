"""Command `dlrm cooldown`: cools a run of this machine down from any of its checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.attempt import run_and_show
from cli.commands.options import Shown, grouped
from cli.local.console import say
from cli.local.cooldown import create_cooldown


@grouped
def cooldown(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run at a constant rate.", show_default=False)
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

    Exit code: 0 trained, 2 no such checkpoint, or a rate that has fallen
    already, 75 stopped, 1 any other failure.
    """
    started = create_cooldown(run, fraction, checkpoint, out)
    say(f"cools down from step {started.checkpoint.step:,}: {started.directory.path}" if started.checkpoint else "")
    run_and_show(started, None, shown)
