"""The client of a command, and its patience with a service that is silent or away."""

from collections.abc import Callable

import typer

from cli.local.console import escape_unprintable, format_duration, say
from service.client import Client, Patience, ServiceAwayError

MAX_WAIT_SECONDS = 30.0
"""Seconds that a command waits for one answer, unless it follows a job."""


def connect(timeout_seconds: float = MAX_WAIT_SECONDS, url: str | None = None) -> Client:
    """Connect to the service. Raises ServiceUnknownError if its URL or API key cannot be found, or is invalid.

    timeout_seconds: longest time that a request waits for an answer. url: of the service; None if it is to be found.
    """
    return Client(url, timeout_seconds=timeout_seconds, on_silence=_say_silence)


def carry_out(request: Callable[[Client], object], done: str) -> None:
    """Send a request to the service, and then print what was done."""
    with connect() as client:
        request(client)
    typer.echo(done)


def _say_silence(url: str, seconds_left: float) -> None:
    say(f"waiting for the service at {url} for up to {format_duration(seconds_left)}")


def make_patience(seconds: float, print_line: Callable[[str], None] = say) -> Patience:
    """Return patience that prints a line when the service goes away, and another one when it is back."""

    def print_absence(away: ServiceAwayError) -> None:
        print_line(escape_unprintable(f"{away}; this waits for the service for up to {format_duration(seconds)}"))

    return Patience(seconds, print_absence, lambda: print_line("the service answers again"))
