"""Patience of the commands that follow a job with a service that is away."""

from collections.abc import Callable
from typing import Annotated

import typer

from cli.local.progress import format_duration
from cli.local.text_format import escape_unprintable
from service.client import Patience, ServiceAwayError

PatienceSeconds = Annotated[
    float,
    typer.Option("--patience", min=0.0, help="Seconds to wait for a service that is away; with --follow."),
]


def make_patience(seconds: float, print_line: Callable[[str], None]) -> Patience:
    """Return patience that tells of the absence and of the return of the service, a line each."""

    def tell_absence(away: ServiceAwayError) -> None:
        print_line(escape_unprintable(f"{away}; this waits for the service for up to {format_duration(seconds)}"))

    return Patience(seconds, tell_absence, lambda: print_line("the service answers again"))
